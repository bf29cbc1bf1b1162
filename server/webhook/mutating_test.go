package webhook

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

func (r *rig) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&r.log, nil)) }

// appendToTrail returns a webhook that appends a letter to the annotation "trail" of the object, so that tests see which
// webhooks were called in which order.
func appendToTrail(letter string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(req.Object.Raw, &o); err != nil {
			panic(err)
		}
		value, _ := json.Marshal(map[string]string{"trail": o.Annotations["trail"] + letter})
		return patchWith(fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations","value":%s}]`, value))(req)
	}
}

// runRounds runs the plugin as the server does: a second time if needed, with the changes of other plugins between the two.
func (r *rig) runRounds(a *kind.Admission, between func()) error {
	r.t.Helper()
	if err := r.mutating.Admit(r.t.Context(), a); err != nil {
		return err
	}
	if between != nil {
		between()
	}
	if a.Reinvocation.IsRequested() {
		a.Reinvocation.IsSecondRun = true
		return r.mutating.Admit(r.t.Context(), a)
	}
	return nil
}

// TestOrder checks that webhooks are called in the order of the names of their configurations, and that each sees the
// changes of those before it.
func TestOrder(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"c", "a", "b"} {
		r.mutate(webhookSetup{configuration: name, answer: appendToTrail(name)})
	}
	a := r.createPod()
	if err := r.runRounds(a, nil); err != nil {
		t.Fatal(err)
	}
	if got := a.Object.GetAnnotations()["trail"]; got != "abc" {
		t.Errorf("trail %s", got)
	}
	if !a.Patched {
		t.Error("the server does not know that the object was changed")
	}
	if got := a.Object.GetObjectKind().GroupVersionKind(); !got.Empty() {
		t.Errorf("the kind of the stored object is %s", got)
	}
}

// TestDefaultsAfterAPatch checks that defaults are set after a patch.
func TestDefaultsAfterAPatch(t *testing.T) {
	r := newRig(t)
	r.mutate(webhookSetup{answer: patchWith(`[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"s"}}]`)})
	a := r.createPod()
	if err := r.runRounds(a, nil); err != nil {
		t.Fatal(err)
	}
	containers := a.Object.(*corev1.Pod).Spec.Containers
	if len(containers) != 2 || containers[1].TerminationMessagePath != "/dev/termination-log" {
		t.Errorf("containers %+v", containers)
	}
}

// TestReinvocation checks that a webhook with the policy IfNeeded is called again when one after it, or another plugin,
// has changed the object; and only once.
func TestReinvocation(t *testing.T) {
	again := func(w *admissionregv1.MutatingWebhook) {
		w.ReinvocationPolicy = new(admissionregv1.IfNeededReinvocationPolicy)
	}
	for name, test := range map[string]struct {
		hooks  []webhookSetup
		plugin bool // another plugin changes the object between the rounds
		want   string
	}{
		"never":     {[]webhookSetup{{answer: appendToTrail("a")}, {answer: appendToTrail("b")}}, false, "ab"},
		"the first": {[]webhookSetup{{answer: appendToTrail("a"), change: again}, {answer: appendToTrail("b")}}, false, "aba"},
		"the last":  {[]webhookSetup{{answer: appendToTrail("a")}, {answer: appendToTrail("b"), change: again}}, false, "ab"},
		"both": {[]webhookSetup{{answer: appendToTrail("a"), change: again}, {answer: appendToTrail("b"), change: again}},
			false, "abab"},
		"nothing changes after":  {[]webhookSetup{{answer: appendToTrail("a"), change: again}, {answer: allow}}, false, "a"},
		"another plugin changes": {[]webhookSetup{{answer: appendToTrail("a"), change: again}}, true, "a!a"},
		"no reinvocation":        {[]webhookSetup{{answer: appendToTrail("a")}}, true, "a!"},
	} {
		r := newRig(t)
		for i, s := range test.hooks {
			s.configuration = string(rune('a' + i))
			r.mutate(s)
		}
		a := r.createPod()
		err := r.runRounds(a, func() {
			if test.plugin {
				a.Object.SetAnnotations(map[string]string{"trail": a.Object.GetAnnotations()["trail"] + "!"})
				a.Reinvocation.Request()
			}
		})
		if got := a.Object.GetAnnotations()["trail"]; got != test.want || err != nil {
			t.Errorf("%s: trail %s, %v, want %s", name, got, err, test.want)
		}
	}
}

// TestAuditAnnotations checks that audit annotations say which webhook has changed the object, with the patch where the
// audit level includes bodies.
func TestAuditAnnotations(t *testing.T) {
	r := newRig(t)
	r.mutate(webhookSetup{configuration: "a", name: "a.example.com",
		answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			out := allow(req)
			out.AuditAnnotations, out.Warnings = map[string]string{"why": "because"}, []string{"", "careful"}
			return out
		}})
	r.mutate(webhookSetup{configuration: "b", name: "b.example.com",
		answer: patchWith(`[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`)})
	if err := r.runRounds(r.createPod(), nil); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`mutation.webhook.admission.k8s.io/round_0_index_0={"configuration":"a","webhook":"a.example.com","mutated":false}`,
		`a.example.com/why=because`,
		`body patch.webhook.admission.k8s.io/round_0_index_1={"configuration":"b","webhook":"b.example.com","patch":[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}],"patchType":"JSONPatch"}`,
		`mutation.webhook.admission.k8s.io/round_0_index_1={"configuration":"b","webhook":"b.example.com","mutated":true}`,
	}, "\n")
	if got := strings.Join(r.annotations, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if fmt.Sprint(r.warnings) != "[careful]" {
		t.Errorf("warnings %s", r.warnings)
	}
}

// TestWarningsAndAuditAnnotationsAreBounded checks that the warnings and audit annotations of a response are limited in size.
func TestWarningsAndAuditAnnotationsAreBounded(t *testing.T) {
	r := newRig(t)
	r.validate(webhookSetup{answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		out := allow(req)
		out.AuditAnnotations = map[string]string{}
		for i := range 10 * maxNotes {
			out.AuditAnnotations[fmt.Sprint(i)] = strings.Repeat("x", 1000)
			out.Warnings = append(out.Warnings, strings.Repeat("x", 10))
		}
		out.AuditAnnotations = map[string]string{"long": strings.Repeat("x", 2*maxNote), strings.Repeat("k", 1000): ""}
		for i := range maxNotes {
			out.AuditAnnotations[fmt.Sprint(i)] = ""
		}
		out.Warnings[0] = strings.Repeat("y", 2*maxWarning)
		return out
	}})
	if err := r.validating.Admit(t.Context(), r.createPod()); err != nil {
		t.Fatal(err)
	}
	if len(r.warnings) != maxWarnings || len(r.warnings[0]) > maxWarning+3 || len(r.annotations) != maxNotes {
		t.Errorf("%d warnings, %d notes", len(r.warnings), len(r.annotations))
	}
	for _, n := range r.annotations {
		if len(n) > maxNote+100 {
			t.Errorf("a note has %d bytes", len(n))
		}
		if key, _, _ := strings.Cut(n, "="); len(key) > 300 {
			t.Errorf("the key of a note has %d bytes", len(key))
		}
	}
}

// TestEquivalentVersions checks that a webhook for one version sees writes to other versions in its own, and that its
// patch applies to that.
func TestEquivalentVersions(t *testing.T) {
	r := newRig(t)
	var seen admissionv1.AdmissionRequest
	r.mutate(webhookSetup{
		change: func(w *admissionregv1.MutatingWebhook) {
			w.Rules[0].APIGroups, w.Rules[0].APIVersions, w.Rules[0].Resources = []string{"autoscaling"}, []string{"v1"},
				[]string{"horizontalpodautoscalers"}
		},
		answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			seen = *req
			return patchWith(`[{"op":"add","path":"/spec/targetCPUUtilizationPercentage","value":42}]`)(req)
		},
	})
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "h", Namespace: "ns"}}
	a := r.write("create", "autoscaling/v2", "horizontalpodautoscalers", hpa, nil)
	if err := r.runRounds(a, nil); err != nil {
		t.Fatal(err)
	}
	if seen.Kind.Version != "v1" || seen.Resource.Version != "v1" || seen.RequestKind.Version != "v2" ||
		seen.RequestResource.Version != "v2" ||
		!strings.Contains(string(seen.Object.Raw), `"apiVersion":"autoscaling/v1"`) {
		t.Errorf("seen %+v, %s", seen, seen.Object.Raw)
	}
	if m := hpa.Spec.Metrics; len(m) != 1 || m[0].Resource == nil || *m[0].Resource.Target.AverageUtilization != 42 {
		t.Errorf("metrics %+v", m)
	}
}

// TestScale checks that a webhook sees the Scale of a Deployment, and changes the Deployment through it.
func TestScale(t *testing.T) {
	r := newRig(t)
	var seen admissionv1.AdmissionRequest
	r.mutate(webhookSetup{answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		seen = *req
		return patchWith(`[{"op":"replace","path":"/spec/replicas","value":7}]`)(req)
	}})
	d := func(n int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "ns"},
			Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{}, Paused: true}}
	}
	next := d(2)
	if err := r.runRounds(r.write("update", "apps/v1", "deployments/scale", next, d(1)), nil); err != nil {
		t.Fatal(err)
	}
	if seen.Kind.Kind != "Scale" || seen.SubResource != "scale" || seen.Resource.Resource != "deployments" ||
		!strings.Contains(string(seen.OldObject.Raw), `"replicas":1`) {
		t.Errorf("seen %+v %s", seen, seen.Object.Raw)
	}
	if *next.Spec.Replicas != 7 || !next.Spec.Paused {
		t.Errorf("spec %+v", next.Spec)
	}
}

// TestActions checks that the body of an action is the object.
func TestActions(t *testing.T) {
	r := newRig(t)
	var seen admissionv1.AdmissionRequest
	r.mutate(webhookSetup{answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		seen = *req
		return patchWith(`[{"op":"add","path":"/deleteOptions","value":{"gracePeriodSeconds":5}}]`)(req)
	}})
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}
	if err := r.runRounds(r.write("create", "v1", "pods/eviction", e, nil), nil); err != nil {
		t.Fatal(err)
	}
	if seen.Kind.Kind != "Eviction" || seen.Resource.Resource != "pods" || seen.SubResource != "eviction" || e.DeleteOptions == nil ||
		*e.DeleteOptions.GracePeriodSeconds != 5 {
		t.Errorf("seen %+v, eviction %+v", seen, e)
	}
}

// TestDeletionsAndConnections checks that a deletion has no object that could be changed, and that a connection has
// options.
func TestDeletionsAndConnections(t *testing.T) {
	r := newRig(t)
	var seen admissionv1.AdmissionRequest
	answer := allow
	r.mutate(webhookSetup{answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		seen = *req
		return answer(req)
	}})
	deletion := r.write("delete", "v1", "pods", nil, pod("p"))
	connection := r.write("connect", "v1", "pods/exec", nil, nil)
	connection.Reinvocation = nil
	connection.Connect = &corev1.PodExecOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodExecOptions"},
		Command: []string{"sh"}}
	for _, test := range []struct {
		a    *kind.Admission
		want string
	}{
		{deletion, "DELETE Pod  true"},
		{connection, `CONNECT PodExecOptions {"kind":"PodExecOptions","apiVersion":"v1","command":["sh"]} false`},
	} {
		if err := r.mutating.Admit(t.Context(), test.a); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(seen.Operation, " ", seen.Kind.Kind, " ", string(seen.Object.Raw), " ",
			len(seen.OldObject.Raw) > 0); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
	answer = patchWith(`[{"op":"add","path":"/x","value":1}]`)
	wantError(t, r.mutating.Admit(t.Context(), deletion), `admission webhook "hook.example.com" attempted to modify the object, which is not supported for this operation`)
	before := connection.Connect.DeepCopyObject()
	if err := r.mutating.Admit(t.Context(), connection); err != nil || !reflect.DeepEqual(connection.Connect, before) {
		t.Errorf("a field that options do not have made them %+v: %v", connection.Connect, err)
	}
	answer = patchWith(`[{"op":"replace","path":"/kind","value":"PodAttachOptions"}]`)
	wantError(t, r.mutating.Admit(t.Context(), connection), `the patch makes a /v1, Kind=PodAttachOptions of a /v1, Kind=PodExecOptions`)
	answer = patchWith(`[{"op":"add","path":"/command","value":5}]`)
	wantError(t, r.mutating.Admit(t.Context(), connection), `cannot unmarshal number into Go struct field`)
	if !reflect.DeepEqual(connection.Connect, before) {
		t.Errorf("patches that failed left %+v", connection.Connect)
	}
}

// TestOptionsOfConnections checks that webhooks can change the options of a connection like an object: each sees the changes
// of those before it, and is called again if needed.
func TestOptionsOfConnections(t *testing.T) {
	r := newRig(t)
	add := func(value string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patchWith(`[{"op":"add","path":"/command/-","value":"` + value + `"}]`)
	}
	again := func(w *admissionregv1.MutatingWebhook) {
		w.ReinvocationPolicy = new(admissionregv1.IfNeededReinvocationPolicy)
	}
	r.mutate(webhookSetup{configuration: "a", answer: add("a"), change: again})
	r.mutate(webhookSetup{configuration: "b", answer: add("b")})
	var seen string
	r.validate(webhookSetup{configuration: "c", answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		seen = string(req.Object.Raw)
		return allow(req)
	}})
	sent := &corev1.PodExecOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodExecOptions"}, Command: []string{"sh"}}
	a := r.write("connect", "v1", "pods/exec", nil, nil)
	a.Connect = sent
	if err := r.runRounds(a, nil); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(a.Connect.(*corev1.PodExecOptions).Command, " "); got != "sh a b a" || len(sent.Command) != 1 {
		t.Errorf("the command is %q, and that of the client %q", got, sent.Command)
	}
	if err := r.validating.Admit(t.Context(), a); err != nil || seen != `{"kind":"PodExecOptions","apiVersion":"v1","command":["sh","a","b","a"]}` {
		t.Errorf("seen %s: %v", seen, err)
	}

	// Changes of another plugin count, too.
	r = newRig(t)
	r.mutate(webhookSetup{configuration: "a", answer: add("a"), change: again})
	a = r.write("connect", "v1", "pods/exec", nil, nil)
	a.Connect = sent
	if err := r.runRounds(a, func() {
		o := a.Connect.DeepCopyObject().(*corev1.PodExecOptions)
		o.Command = append(o.Command, "!")
		a.Connect = o
		a.Reinvocation.Request()
	}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(a.Connect.(*corev1.PodExecOptions).Command, " "); got != "sh a ! a" {
		t.Errorf("the command is %q", got)
	}
}

// TestGeneratedNames checks that webhooks see no generated name before it is final, and that it is kept if a webhook sets
// none.
func TestGeneratedNames(t *testing.T) {
	r := newRig(t)
	var seen []string
	see := func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		seen = append(seen, fmt.Sprintf("%q %t", req.Name, strings.Contains(string(req.Object.Raw), `"web-x4k9z"`)))
		return allow(req)
	}
	r.mutate(webhookSetup{configuration: "a", answer: appendToTrail("a")})
	r.mutate(webhookSetup{configuration: "b", answer: see})
	r.validate(webhookSetup{configuration: "c", answer: see})
	p := pod("web-x4k9z")
	p.GenerateName = "web-"
	a := r.write("create", "v1", "pods", p, nil)
	if err := r.runRounds(a, nil); err != nil {
		t.Fatal(err)
	}
	a.Final = true
	if err := r.validating.Admit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(seen, ", "); got != `"" false, "web-x4k9z" true` || p.Name != "web-x4k9z" {
		t.Errorf("seen %s, name %s", got, p.Name)
	}
}

// TestCustomObjects checks objects of custom resources, which have no Go type.
func TestCustomObjects(t *testing.T) {
	r := newRig(t)
	r.mutate(webhookSetup{answer: patchWith(`[{"op":"add","path":"/spec/size","value":3}]`)})
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	def := &kind.Def{
		Traits: kind.Traits{GroupVersionKind: gvk, Plural: "widgets"},
		New:    func() kind.Object { return &unstructured.Unstructured{} }, Default: func(o kind.Object) {
			_ = unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, "red", "spec", "colour")
		},
	}
	r.defs = append(r.defs, def)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "w", "namespace": "ns"}, "spec": map[string]any{"n": int64(1)}}}
	if err := r.runRounds(r.write("create", "example.com/v1", "widgets", u, nil), nil); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%v %T", u.Object["spec"], u.Object["spec"].(map[string]any)["size"]); got != "map[colour:red n:1 size:3] int64" {
		t.Errorf("spec %s", got)
	}
}

// TestConnectionsAreReused checks that connections to a webhook are reused.
func TestConnectionsAreReused(t *testing.T) {
	r := newRig(t)
	remotes := map[string]bool{}
	r.validate(webhookSetup{serve: func(w http.ResponseWriter, req *http.Request) {
		remotes[req.RemoteAddr] = true
		http.Error(w, "no", http.StatusTeapot)
	}})
	for range 10 {
		_ = r.validating.Admit(t.Context(), r.createPod())
	}
	if len(remotes) != 1 {
		t.Errorf("%d connections for 10 reviews", len(remotes))
	}
}
