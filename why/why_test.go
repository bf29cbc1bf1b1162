package why_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/why"
	"proa.dev/why/report"
)

// world is a cluster that consists of the objects of a test.
type world struct {
	objects   map[schema.GroupResource][]map[string]any
	forbidden map[string]bool
	failing   map[string]string    // what the server says in place of objects, by resource
	served    []metav1.APIResource // by discovery
	requests  int
	outage    bool // the store does not answer
}

// ReadCached has everything read from the cache of the server.
func (w *world) ReadCached() { w.outage = false }

func (w *world) Discover(context.Context) ([]metav1.APIResource, error) {
	if w.forbidden["discovery"] {
		return nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	}
	return w.served, nil
}

func (w *world) Get(_ context.Context, r schema.GroupResource, namespace, name string, into any) error {
	w.requests++
	if w.forbidden[r.Resource] {
		return apierrors.NewForbidden(r, name, nil)
	}
	if w.outage && r.Group != "trace.proa.dev" {
		return apierrors.NewServiceUnavailable("the store is not available: no answer")
	}
	if message := w.failing[r.Resource]; message != "" {
		return apierrors.NewServiceUnavailable(message)
	}
	for _, o := range w.objects[r] {
		if m := o["metadata"].(map[string]any); m["name"] == name && (namespace == "" || m["namespace"] == namespace) {
			return convert(o, into)
		}
	}
	if len(w.objects[r]) == 0 && r.Group == "trace.proa.dev" { // as in a cluster that does not have the resource
		name = ""
	}
	return apierrors.NewNotFound(r, name)
}

func (w *world) List(_ context.Context, r schema.GroupResource, namespace, _ string, into any) error {
	w.requests++
	if w.forbidden[r.Resource] {
		return apierrors.NewForbidden(r, "", nil)
	}
	if w.outage {
		return apierrors.NewServiceUnavailable("the store is not available: no answer")
	}
	items := []map[string]any{}
	for _, o := range w.objects[r] {
		if namespace == "" || o["metadata"].(map[string]any)["namespace"] == namespace {
			items = append(items, o)
		}
	}
	return convert(map[string]any{"items": items}, into)
}

func convert(from, into any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// resources are the kinds of the tests with their resources, and whether they have a namespace.
var resources = map[string]struct {
	schema.GroupResource
	global bool
}{
	"Pod": {schema.GroupResource{Resource: "pods"}, false}, "Node": {schema.GroupResource{Resource: "nodes"}, true},
	"Event": {schema.GroupResource{Resource: "events"}, false}, "Service": {schema.GroupResource{Resource: "services"}, false},
	"Secret": {schema.GroupResource{Resource: "secrets"}, false}, "ConfigMap": {schema.GroupResource{Resource: "configmaps"}, false},
	"Namespace":             {schema.GroupResource{Resource: "namespaces"}, true},
	"PersistentVolumeClaim": {schema.GroupResource{Resource: "persistentvolumeclaims"}, false},
	"Deployment":            {schema.GroupResource{Group: "apps", Resource: "deployments"}, false},
	"ReplicaSet":            {schema.GroupResource{Group: "apps", Resource: "replicasets"}, false},
	"StatefulSet":           {schema.GroupResource{Group: "apps", Resource: "statefulsets"}, false},
	"DaemonSet":             {schema.GroupResource{Group: "apps", Resource: "daemonsets"}, false},
	"Job":                   {schema.GroupResource{Group: "batch", Resource: "jobs"}, false},
	"CronJob":               {schema.GroupResource{Group: "batch", Resource: "cronjobs"}, false},

	"HorizontalPodAutoscaler":   {schema.GroupResource{Group: "autoscaling", Resource: "horizontalpodautoscalers"}, false},
	"StorageClass":              {schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}, true},
	"EndpointSlice":             {schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}, false},
	"Lease":                     {schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, false},
	"Ingress":                   {schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}, false},
	"IngressClass":              {schema.GroupResource{Group: "networking.k8s.io", Resource: "ingressclasses"}, true},
	"HTTPRoute":                 {schema.GroupResource{Group: "gateway.networking.k8s.io", Resource: "httproutes"}, false},
	"GRPCRoute":                 {schema.GroupResource{Group: "gateway.networking.k8s.io", Resource: "grpcroutes"}, false},
	"Gateway":                   {schema.GroupResource{Group: "gateway.networking.k8s.io", Resource: "gateways"}, false},
	"GatewayClass":              {schema.GroupResource{Group: "gateway.networking.k8s.io", Resource: "gatewayclasses"}, true},
	"ReplicationController":     {schema.GroupResource{Resource: "replicationcontrollers"}, false},
	"PersistentVolume":          {schema.GroupResource{Resource: "persistentvolumes"}, true},
	"CustomResourceDefinition":  {schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, true},
	"CertificateSigningRequest": {schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}, true},
	"MutatingWebhookConfiguration": {schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		true},
	"SchedulingAttempt": {schema.GroupResource{Group: "trace.proa.dev", Resource: "schedulingattempts"}, false},
	"Trace":             {schema.GroupResource{Group: "trace.proa.dev", Resource: "traces"}, false},
	"Certificate":       {schema.GroupResource{Group: "cert-manager.io", Resource: "certificates"}, false},
	"Issuer":            {schema.GroupResource{Group: "cert-manager.io", Resource: "issuers"}, false},
	"ClusterIssuer":     {schema.GroupResource{Group: "cert-manager.io", Resource: "clusterissuers"}, true},
}

// add reads objects. What a test leaves out is filled in: the namespace, a UID made of kind and name, the time of creation.
func (w *world) add(t *testing.T, text string) {
	t.Helper()
	for _, doc := range strings.Split(text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		kind, _ := o["kind"].(string)
		r, known := resources[kind]
		if !known {
			t.Fatalf("the test knows no kind %q", kind)
		}
		m, _ := o["metadata"].(map[string]any)
		fill := func(key string, value any) {
			if _, has := m[key]; !has {
				m[key] = value
			}
		}
		if !r.global {
			fill("namespace", "default")
		}
		fill("uid", strings.ToLower(kind)+"-"+m["name"].(string))
		fill("creationTimestamp", "2026-11-17T11:50:00Z")
		w.objects[r.GroupResource] = append(w.objects[r.GroupResource], o)
	}
}

// TestAnswers plays texts: "$ objects" adds objects, "$ forbid RESOURCE" makes a resource unreadable, "$ outage" takes the store away,
// "$ fail RESOURCE MESSAGE" makes the server say so when it is read, "$ serve KIND" adds a resource to discovery, "$ why KIND NAME"
// and "$ stuck [NAMESPACE]" print answers.
func TestAnswers(t *testing.T) {
	now := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	clean := func(s string) string { return strings.ReplaceAll(s, "\x1b", "<ESC>") }
	textcase.Play(t, "testdata/*.txt", "== ", func(t *testing.T, body string) string {
		w := &world{objects: map[schema.GroupResource][]map[string]any{}, forbidden: map[string]bool{}}
		asker := &why.Asker{Cluster: w, Now: now}
		return textcase.Script(body, func(command, input string) (string, bool) {
			words := strings.Fields(command)
			var out strings.Builder
			switch words[0] {
			case "objects":
				w.add(t, strings.TrimSpace(input))
				return "", false
			case "forbid":
				w.forbidden[words[1]] = true
				return "", false
			case "fail":
				w.failing = map[string]string{words[1]: strings.Join(words[2:], " ")}
				return "", false
			case "outage":
				w.outage = true
				return "", false
			case "serve":
				r := resources[words[1]]
				w.served = append(w.served, metav1.APIResource{Group: r.Group, Name: r.Resource, Kind: words[1], Namespaced: !r.global,
					Verbs: metav1.Verbs{"get", "list"}})
				return "", false
			case "why":
				r := resources[words[1]]
				target := why.Target{Resource: r.GroupResource, Kind: words[1], Namespace: "default", Name: words[2]}
				if r.global {
					target.Namespace = ""
				}
				a, err := asker.Explain(t.Context(), target)
				if err != nil {
					return "error: " + err.Error() + "\n", true
				}
				report.Write(&out, a, now, clean)
			case "stuck":
				answers, unseen := asker.Stuck(t.Context(), strings.TrimSpace(strings.TrimPrefix(command, "stuck")))
				for _, a := range answers {
					out.WriteString(clean(report.Headline(a)) + "\n")
				}
				for _, u := range unseen {
					out.WriteString("not seen: " + u + "\n")
				}
			default:
				t.Fatalf("no command %q", command)
			}
			return out.String(), true
		})
	})
}

// TestEveryKindIsExplained holds that each kind of the test's table gives an answer, also about an object with nothing in it.
func TestEveryKindIsExplained(t *testing.T) {
	for _, kind := range slices.Sorted(maps.Keys(resources)) {
		w := &world{objects: map[schema.GroupResource][]map[string]any{}, forbidden: map[string]bool{}}
		w.add(t, "kind: "+kind+"\nmetadata: {name: x}")
		r := resources[kind]
		namespace := "default"
		if r.global {
			namespace = ""
		}
		a, err := (&why.Asker{Cluster: w, Now: time.Now()}).Explain(t.Context(),
			why.Target{Resource: r.GroupResource, Kind: kind, Namespace: namespace, Name: "x"})
		if err != nil || a.Cause == "" || a.State == "" {
			t.Errorf("%s: %+v, %v", kind, a, err)
		}
	}
}

// TestManyPodsCostFewRequests holds that a list of 10,000 broken Pods makes a request for each resource and node, not for each Pod,
// and that what was left out is said.
func TestManyPodsCostFewRequests(t *testing.T) {
	w := &world{objects: map[schema.GroupResource][]map[string]any{}, forbidden: map[string]bool{}}
	w.add(t, "kind: Node\nmetadata: {name: n1}\nstatus: {conditions: [{type: Ready, status: 'True'}]}")
	pod := func(name string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": name, "namespace": "ns-" + name[len(name)-2:], "uid": name},
			"spec":     map[string]any{"nodeName": "n1", "containers": []any{map[string]any{"name": "c"}}},
			"status": map[string]any{"containerStatuses": []any{map[string]any{"name": "c",
				"state": map[string]any{"waiting": map[string]any{"reason": "CreateContainerError"}}}}},
		}
	}
	pods, events := resources["Pod"].GroupResource, resources["Event"].GroupResource
	for i := range 10000 {
		p := pod(fmt.Sprintf("p-%05d", i))
		w.objects[pods] = append(w.objects[pods], p)
		w.objects[events] = append(w.objects[events], map[string]any{
			"metadata":       map[string]any{"name": "e", "namespace": p["metadata"].(map[string]any)["namespace"]},
			"involvedObject": map[string]any{"uid": fmt.Sprintf("p-%05d", i)}, "reason": "Failed",
		})
	}
	answers, unseen := (&why.Asker{Cluster: w, Now: time.Now()}).Stuck(t.Context(), "")
	if len(answers) != 1000 || !strings.Contains(strings.Join(unseen, "\n"), "9000 objects that may be stuck as well") {
		t.Errorf("%d answers, not seen: %q", len(answers), unseen)
	}
	if w.requests > 30 {
		t.Errorf("%d requests for 10,000 Pods of 100 namespaces", w.requests)
	}
}

// TestManyPodsOfOneWorkload holds the same for the question about one Deployment.
func TestManyPodsOfOneWorkload(t *testing.T) {
	w := &world{objects: map[schema.GroupResource][]map[string]any{}, forbidden: map[string]bool{}}
	w.add(t, `kind: ReplicaSet
metadata: {name: web}
spec: {replicas: 500}`)
	for i := range 500 {
		w.add(t, fmt.Sprintf(`kind: Pod
metadata: {name: web-%d, ownerReferences: [{kind: ReplicaSet, name: web, uid: replicaset-web, controller: true}]}
spec: {nodeName: n1, volumes: [{name: v, configMap: {name: settings}}]}
status: {containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}`, i))
	}
	w.add(t, "kind: Node\nmetadata: {name: n1}\nstatus: {conditions: [{type: Ready, status: 'True'}]}")
	a, err := (&why.Asker{Cluster: w, Now: time.Now()}).Explain(t.Context(),
		why.Target{Resource: resources["ReplicaSet"].GroupResource, Kind: "ReplicaSet", Namespace: "default", Name: "web"})
	if err != nil || a.State != why.Stuck || w.requests > 10 {
		t.Errorf("%+v, %v after %d requests", a, err, w.requests)
	}
}

// TestLongMessagesAreCut holds that a message of a megabyte does not become an answer of a megabyte, and stays valid text.
func TestLongMessagesAreCut(t *testing.T) {
	w := &world{objects: map[schema.GroupResource][]map[string]any{}, forbidden: map[string]bool{}}
	w.add(t, "kind: Certificate\nmetadata: {name: x}\nstatus: {conditions: [{type: Ready, status: 'False', message: '"+
		strings.Repeat("ä€ ", 1<<17)+"'}]}")
	a, err := (&why.Asker{Cluster: w, Now: time.Now()}).Explain(t.Context(),
		why.Target{Resource: resources["Certificate"].GroupResource, Kind: "Certificate", Namespace: "default", Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	report.Write(&out, a, time.Now(), func(s string) string { return s })
	if text := out.String(); len(text) > 5000 || !utf8.ValidString(text) {
		t.Errorf("%d bytes, valid: %t", len(text), utf8.ValidString(text))
	}
}

// TestOddObjects holds that lists of nulls, missing times and numbers at their limits give an answer for every kind, also while the object
// is being deleted.
func TestOddObjects(t *testing.T) {
	const odd = `
spec: {nodeName: n1, volumes: [null], containers: [null], initContainers: [null], rules: [null, {http: {paths: [null]}}], tls: [null],
  ports: [null], selector: {a: b}, readinessGates: [null], imagePullSecrets: [null], finalizers: [null], replicas: 2147483647,
  terminationGracePeriodSeconds: 4503599627370496}
status: {conditions: [null], containerStatuses: [null], initContainerStatuses: [null], parents: [null], loadBalancer: {ingress: [null]},
  readyReplicas: -2147483648, updatedReplicas: 2147483647, observedGeneration: -4503599627370496}
endpoints: [null]`
	for _, kind := range slices.Sorted(maps.Keys(resources)) {
		for _, meta := range []string{"{name: x}", "{name: x, creationTimestamp: null, deletionTimestamp: '9999-12-31T23:59:59Z', finalizers: [null]}"} {
			w := &world{objects: map[schema.GroupResource][]map[string]any{}, forbidden: map[string]bool{}}
			spec := odd
			if kind == "StatefulSet" || kind == "Deployment" || kind == "ReplicaSet" || kind == "DaemonSet" || kind == "Job" {
				spec = strings.Replace(odd, "selector: {a: b}, ", "", 1)
			}
			w.add(t, "kind: "+kind+"\nmetadata: "+meta+spec)
			r := resources[kind]
			namespace := "default"
			if r.global {
				namespace = ""
			}
			asker := &why.Asker{Cluster: w, Now: time.Now()}
			a, err := asker.Explain(t.Context(), why.Target{Resource: r.GroupResource, Kind: kind, Namespace: namespace, Name: "x"})
			if err != nil || a.Cause == "" || a.State == "" {
				t.Errorf("%s %s: %+v, %v", kind, meta, a, err)
			}
			asker.Stuck(t.Context(), "")
		}
	}
}

// TestServersThatDidNotAnswer holds that an explanation which rests on records says which servers did not give theirs.
func TestServersThatDidNotAnswer(t *testing.T) {
	w := &world{objects: map[schema.GroupResource][]map[string]any{}, forbidden: map[string]bool{}}
	w.add(t, `kind: Pod
metadata: {name: web, creationTimestamp: "2026-11-17T12:00:00Z"}
spec: {nodeName: n1}
status: {containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}`)
	w.add(t, "kind: Node\nmetadata: {name: n1}\nstatus: {conditions: [{type: Ready, status: 'True'}]}")
	w.add(t, `kind: Trace
metadata: {name: "pods:web"}
unseen: ["apiserver-1 at 192.0.2.1:6443: it did not answer in 1s"]`)
	a, err := (&why.Asker{Cluster: w, Now: time.Now()}).Explain(t.Context(),
		why.Target{Resource: resources["Pod"].GroupResource, Kind: "Pod", Namespace: "default", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "what other servers have recorded: apiserver-1 at 192.0.2.1:6443: it did not answer in 1s"
	if !slices.Contains(a.Unseen, want) {
		t.Errorf("not seen: %q", a.Unseen)
	}
}

// TestManyCustomObjects holds that a list looks at a bounded number of custom resources and of their objects, and says what it left out.
func TestManyCustomObjects(t *testing.T) {
	w := &world{objects: map[schema.GroupResource][]map[string]any{}, forbidden: map[string]bool{}}
	for i := range 100 {
		w.add(t, fmt.Sprintf(`kind: CustomResourceDefinition
metadata: {name: "k%02d.example.com"}
spec: {group: example.com, scope: Namespaced, names: {plural: k%02d, kind: K}}
status: {conditions: [{type: Established, status: "True"}]}`, i, i))
	}
	bad := map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False"}}}
	first := schema.GroupResource{Group: "example.com", Resource: "k00"}
	fill := func(n int) {
		w.objects[first], w.requests = nil, 0
		for i := range n {
			meta := map[string]any{"name": fmt.Sprint("o-", i), "namespace": "default", "uid": fmt.Sprint("o-", i)}
			w.objects[first] = append(w.objects[first], map[string]any{"metadata": meta, "status": bad})
		}
	}
	asker := &why.Asker{Cluster: w, Now: time.Now()}
	fill(10)
	answers, unseen := asker.Stuck(t.Context(), "")
	if len(answers) != 10 || w.requests > 100 || !strings.Contains(strings.Join(unseen, "\n"), "(k50.example.com, k51.example.com, ") {
		t.Errorf("%d answers after %d requests, not seen: %q", len(answers), w.requests, unseen)
	}
	fill(5000)
	answers, unseen = asker.Stuck(t.Context(), "")
	if len(answers) != 1000 || w.requests > 40 ||
		!strings.Contains(strings.Join(unseen, "\n"), "(3000 of 5000 k00.example.com, k01.example.com, ") {
		t.Errorf("%d answers after %d requests, not seen: %q", len(answers), w.requests, unseen)
	}
}
