package otlp

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"proa.dev/trace"
	"proa.dev/trace/otlp/otlptest"
)

// decode reads OTLP/JSON strictly.
func decode(t *testing.T, body []byte) []otlptest.Span {
	t.Helper()
	spans, err := otlptest.Decode(body)
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	return spans
}

func spansByName(t *testing.T, spans []otlptest.Span) map[string]otlptest.Span {
	t.Helper()
	out := map[string]otlptest.Span{}
	for _, s := range spans {
		if out[s.GetName()].Span != nil {
			t.Errorf("the span %q is there twice", s.GetName())
		}
		out[s.GetName()] = s
	}
	return out
}

// rootID is the ID of a span as package trace makes them; other texts are IDs too.
const rootID = "00f067aa0ba902b7"

// sample is a Deployment's creation with one hop, the ReplicaSet that it caused, and work on a node.
func sample() *trace.Trace {
	start := time.Unix(1_800_000_000, 123456789).UTC()
	web := trace.Ref{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web", UID: "u-web"}
	set := trace.Ref{Group: "apps", Resource: "replicasets", Namespace: "shop", Name: "web-1", UID: "u-set"}
	pod := trace.Ref{Resource: "pods", Namespace: "shop", Name: "web-1-x", UID: "u-pod"}
	return &trace.Trace{
		ClusterUID: "u-cluster", Object: web, Command: "kubectl apply", Start: start, Summary: "31 ms in all",
		Milestones: []trace.Milestone{{Name: "Ready", At: 30 * time.Millisecond}},
		Spans: []trace.Span{
			{ID: rootID, Name: "create web", Actor: "ann", AuditID: "4f5d", Object: web, Revision: 7, Process: "s1", Start: start,
				Took: 5 * time.Millisecond},
			{ID: "a/7", Parent: rootID, Hop: 7, HopName: "commit", Name: "commit", Process: "s1", Start: start.Add(time.Millisecond),
				Took: 4 * time.Millisecond, Wait: 3 * time.Millisecond},
			{ID: "b", Links: []string{rootID}, Name: "create web-1", Actor: "the controller", Object: set, Revision: 8,
				Process: "s1", Start: start.Add(6 * time.Millisecond), Took: time.Millisecond, Critical: true},
			{ID: "c", Links: []string{"b"}, Hop: 11, HopName: "node", Name: "pull", Actor: "system:node:n1", Object: pod, Revision: 9,
				Process: "node n1", Start: start.Add(8 * time.Millisecond), Took: time.Second, Open: true, Error: "no such image",
				Detail: "10 bytes"},
			{ID: "d", Links: []string{"c", "gone"}, Hop: 9, HopName: "control", Name: "hidden", Process: "s1", Hidden: true, Start: start,
				Took: time.Second, Actor: "secret", Object: trace.Ref{Resource: "secrets", Name: "secret"}},
		},
	}
}

func TestJSONIsWhatTheProtocolDefines(t *testing.T) {
	in := sample()
	body, err := JSON(in)
	if err != nil {
		t.Fatal(err)
	}
	got := decode(t, body)
	var processes []string
	for _, s := range got {
		if s.Resource["service.name"] != "proa" || s.Resource["k8s.cluster.uid"] != "u-cluster" {
			t.Errorf("the resource has %v", s.Resource)
		}
		processes = append(processes, s.Resource["service.instance.id"])
	}
	if !reflect.DeepEqual(processes, []string{"s1", "s1", "s1", "s1", "node n1"}) {
		t.Errorf("the processes are %v", processes)
	}
	spans := spansByName(t, got)
	want := WriteTraceID("u-web", 7)
	if got := hex.EncodeToString(spans["create web"].GetSpanId()); got != rootID {
		t.Errorf("a span with the ID %s has another one in OTLP: %s", rootID, got)
	}
	for name, s := range spans {
		if TraceID(s.GetTraceId()) != want {
			t.Errorf("%s has the trace ID %x, want that of the write at the root, %x", name, s.GetTraceId(), want)
		}
	}
	root, commit, set, pull := spans["create web"], spans["commit"], spans["create web-1"], spans["pull"]
	if root.GetKind() != tracepb.Span_SPAN_KIND_SERVER || commit.GetKind() != tracepb.Span_SPAN_KIND_INTERNAL {
		t.Errorf("the kinds are %v and %v", root.GetKind(), commit.GetKind())
	}
	if len(root.GetParentSpanId()) != 0 || string(commit.GetParentSpanId()) != string(root.GetSpanId()) {
		t.Errorf("the parent of the request is %x, of its hop %x", root.GetParentSpanId(), commit.GetParentSpanId())
	}
	if len(set.GetParentSpanId()) != 0 || len(set.GetLinks()) != 1 || string(set.GetLinks()[0].GetSpanId()) != string(root.GetSpanId()) ||
		TraceID(set.GetLinks()[0].GetTraceId()) != want {
		t.Errorf("a cause is a link and no parent: %v", set)
	}
	if start := in.Start.UnixNano(); int64(root.GetStartTimeUnixNano()) != start || int64(root.GetEndTimeUnixNano()) != start+5e6 {
		t.Errorf("the request is from %d to %d, want from %d on", root.GetStartTimeUnixNano(), root.GetEndTimeUnixNano(), start)
	}
	if e := root.GetEvents(); len(e) != 1 || e[0].GetName() != "Ready" || int64(e[0].GetTimeUnixNano()) != in.Start.UnixNano()+30e6 {
		t.Errorf("the milestones are %v", e)
	}
	if s := pull.GetStatus(); s.GetCode() != tracepb.Status_STATUS_CODE_ERROR || s.GetMessage() != "no such image" ||
		root.GetStatus() != nil {
		t.Errorf("the status is %v, that of the request %v", s, root.GetStatus())
	}
	for name, want := range map[string]map[string]string{
		"create web": {"enduser.id": "ann", "audit-id": "4f5d", "http.request.method": "POST", "k8s.namespace.name": "shop",
			"k8s.deployment.name": "web", "k8s.deployment.uid": "u-web",
			"proa.object.resource": "deployments.apps", "proa.object.revision": "7", "proa.command": "kubectl apply", "proa.summary": "31 ms in all"},
		"create web-1": {"enduser.id": "the controller", "k8s.namespace.name": "shop", "k8s.replicaset.name": "web-1",
			"k8s.replicaset.uid": "u-set", "proa.object.resource": "replicasets.apps", "proa.object.revision": "8", "proa.critical": "true"},
		"commit": {"proa.hop": "7", "proa.hop.name": "commit", "proa.wait_ns": "3000000"},
		"pull": {"proa.hop": "11", "proa.hop.name": "node", "proa.open": "true", "enduser.id": "system:node:n1", "k8s.node.name": "n1",
			"k8s.namespace.name": "shop", "k8s.pod.name": "web-1-x", "k8s.pod.uid": "u-pod", "proa.detail": "10 bytes",
			"proa.object.resource": "pods", "proa.object.revision": "9"},
		"hidden": {"proa.hop": "9", "proa.hop.name": "control", "proa.hidden": "true"},
	} {
		if got := spans[name].Tags; !reflect.DeepEqual(got, want) {
			t.Errorf("%s has the attributes\n%v, want\n%v", name, got, want)
		}
	}
	if l := spans["hidden"].GetLinks(); len(l) != 1 {
		t.Errorf("a span has %d links, want only that to a span of the trace", len(l))
	}
}

func TestTraceParentIsTheParentOfTheRequest(t *testing.T) {
	in := sample()
	in.Spans[0].TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	body, err := JSON(in)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range spansByName(t, decode(t, body)) {
		if got := hex.EncodeToString(s.GetTraceId()); got != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s has the trace ID %s", name, got)
		}
		if parent := hex.EncodeToString(s.GetParentSpanId()); (parent == "b7ad6b7169203331") != (name == "create web") {
			t.Errorf("%s has the parent %s", name, parent)
		}
	}
}

func TestSpansWithoutRootAndInCircles(t *testing.T) {
	in := &trace.Trace{Spans: []trace.Span{
		{ID: "a", Links: []string{"b"}, Object: trace.Ref{Resource: "pods", UID: "1"}, Name: "a"},
		{ID: "b", Links: []string{"a"}, Object: trace.Ref{Resource: "pods", UID: "2"}, Name: "b"},
		{ID: "c", Links: []string{"c"}, Name: "c"},
		{ID: "", Name: "nothing"},
	}}
	body, err := JSON(in)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range spansByName(t, decode(t, body)) {
		if TraceID(s.GetTraceId()) == (TraceID{}) || SpanID(s.GetSpanId()) == (SpanID{}) {
			t.Errorf("%s has an ID of zeros", name)
		}
	}
	if body, err := JSON(&trace.Trace{}); err != nil || string(body) != `{"resourceSpans":[]}` {
		t.Errorf("an empty trace is %s, %v", body, err)
	}
}

func TestTextsAreCutAndValid(t *testing.T) {
	in := sample()
	in.Spans[0].Name = strings.Repeat("é", 10000)
	in.Spans[0].Detail = "a\xffb\x1b[31m"
	body, err := JSON(in)
	if err != nil {
		t.Fatal(err)
	}
	s := decode(t, body)[0]
	if n := len(s.GetName()); n > maxText+3 || n < maxText-3 {
		t.Errorf("a long name is sent with %d bytes", n)
	}
	if got := s.Tags["proa.detail"]; got != "a\uFFFDb\x1b[31m" {
		t.Errorf("the detail is %q", got)
	}
}

// TestMethods checks which method the spans of requests over HTTP have.
func TestMethods(t *testing.T) {
	for name, want := range map[string]string{
		"create pods/binding": "POST", "update pods/status": "PUT", "patch deployments.apps": "PATCH", "delete pods": "DELETE",
		"deletecollection pods": "DELETE", "reconcile": "",
	} {
		if got := methodOf(&trace.Span{Name: name, AuditID: "1"}); got != want {
			t.Errorf("%s has the method %q, want %q", name, got, want)
		}
	}
	for _, s := range []trace.Span{
		{Name: "create pods"}, {Name: "create main", AuditID: "1", Parent: "x"}, {Name: "create main", AuditID: "1", Hop: 11},
	} {
		if got := methodOf(&s); got != "" {
			t.Errorf("%+v, which is no request over HTTP, has the method %q", s, got)
		}
	}
}
