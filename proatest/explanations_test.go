package proatest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/whykind"
	"proa.dev/proatest"
	"proa.dev/why"
)

const traceAPI = "/apis/trace.proa.dev/v1/"

// getAs reads a path as another user, and returns the answer or the status.
func getAs[T any](t *testing.T, c *proatest.Cluster, name, path string) (out *T, code int, text string) {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.Impersonate.UserName = name
	if name == "admin" {
		config.Impersonate.Groups = []string{"system:masters"}
	}
	code, text, _ = send(t, config, http.MethodGet, path, "")
	out = new(T)
	if code == http.StatusOK {
		if err := json.Unmarshal([]byte(text), out); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return out, code, text
}

// waitFor waits until an object of a resource satisfies a condition.
func waitFor(t *testing.T, c *proatest.Cluster, on schema.GroupResource, wanted func(kind.Object) bool) {
	t.Helper()
	view, err := c.Client.View(t.Context(), on)
	if err != nil {
		t.Fatal(err)
	}
	for ev := range view.Events(t.Context()) {
		if ev.Object != nil && wanted(ev.Object) {
			return
		}
	}
	t.Fatalf("nothing of %s has become as wanted", on)
}

// explainedCluster returns a cluster of two simulated nodes with a Pod that runs and one that fits nowhere, in the namespace shop.
// The user dev has the role view there; eve may read explanations and scheduling attempts, and nothing else.
func explainedCluster(t *testing.T) *proatest.Cluster {
	c := proatest.Start(t, proatest.Memory(), proatest.Simulate(2))
	subject := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}}
	}
	for _, name := range []string{"sim-0", "sim-1"} {
		waitFor(t, c, gr.Nodes, func(o kind.Object) bool { return o.GetName() == name && len(o.(*corev1.Node).Spec.Taints) == 0 })
	}
	for _, err := range []error{
		create(t, c, gr.Namespaces, &corev1.Namespace{}, "metadata: {name: shop}"),
		create(t, c, gr.Pods, &corev1.Pod{}, `metadata: {name: huge, namespace: shop}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "9999"}}}]}`),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the scheduler does not know both nodes without their taints", func() bool {
		got, code, _ := getAs[whykind.SchedulingAttempt](t, c, "admin", traceAPI+"namespaces/shop/schedulingattempts/huge")
		const full = "Insufficient cpu"
		return code == http.StatusOK && len(got.Nodes) == 2 && got.Nodes[0].Reason == full && got.Nodes[1].Reason == full
	})
	err := create(t, c, gr.Pods, &corev1.Pod{}, "metadata: {name: runs, namespace: shop}\nspec: {containers: [{name: c, image: i}]}")
	if err != nil {
		t.Fatal(err)
	}
	may := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ask"}, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"get", "list"}, APIGroups: []string{"trace.proa.dev"}, Resources: []string{"explanations", "schedulingattempts"},
	}}}
	if _, err := c.Client.Create(t.Context(), gr.Roles, may); err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]rbacv1.RoleRef{
		"dev": {APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		"eve": {APIGroup: rbacv1.GroupName, Kind: "Role", Name: "ask"},
	} {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, RoleRef: role, Subjects: subject(name)}
		if _, err := c.Client.Create(t.Context(), gr.RoleBindings, binding); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, c, gr.Pods, func(o kind.Object) bool {
		statuses := o.(*corev1.Pod).Status.ContainerStatuses
		return o.GetName() == "runs" && len(statuses) > 0 && statuses[0].Ready
	})
	waitFor(t, c, gr.Pods, func(o kind.Object) bool { return o.GetName() == "huge" && len(o.(*corev1.Pod).Status.Conditions) > 0 })
	until(t, "the role view, which a controller fills, does not allow everything yet", func() bool {
		_, attempt, _ := getAs[whykind.SchedulingAttempt](t, c, "dev", traceAPI+"namespaces/shop/schedulingattempts/huge")
		_, explanation, _ := getAs[whykind.Explanation](t, c, "dev", traceAPI+"namespaces/shop/explanations/pods:huge")
		return attempt == http.StatusOK && explanation == http.StatusOK
	})
	return c
}

// TestSchedulingAttempts checks what users see of scheduling attempts: administrators everything, a user with the role view the
// reasons without the names of nodes, and others nothing.
func TestSchedulingAttempts(t *testing.T) {
	c := explainedCluster(t)
	const huge, runs = traceAPI + "namespaces/shop/schedulingattempts/huge", traceAPI + "namespaces/shop/schedulingattempts/runs"

	got, code, text := getAs[whykind.SchedulingAttempt](t, c, "admin", huge)
	if code != http.StatusOK || got.Kind != "SchedulingAttempt" || got.Name != "huge" || got.Total != 2 || got.Feasible != 0 ||
		got.ChosenNode != "" ||
		!strings.HasPrefix(got.Message, "0/2 nodes are available") || len(got.Nodes) != 2 || got.Nodes[0].Node == "" ||
		got.Nodes[0].Plugin != "NodeResourcesFit" || got.Nodes[0].Reason != "Insufficient cpu" {
		t.Errorf("%d %s", code, text)
	}
	got, code, text = getAs[whykind.SchedulingAttempt](t, c, "admin", runs)
	if code != http.StatusOK || got.Feasible != 2 || got.ChosenNode == "" || len(got.Nodes) != 2 || got.Nodes[0].Score == nil ||
		*got.Nodes[0].Score <= 0 || len(got.Nodes[0].Scores) < 3 {
		t.Errorf("%d %s", code, text)
	}
	chosen := got.ChosenNode

	got, code, text = getAs[whykind.SchedulingAttempt](t, c, "dev", huge)
	if code != http.StatusOK || len(got.Nodes) != 2 || got.Nodes[0].Node != "" || !got.Nodes[0].Hidden ||
		got.Nodes[0].Reason != "Insufficient cpu" {
		t.Errorf("a user with the role view gets %d %s", code, text)
	}
	got, code, text = getAs[whykind.SchedulingAttempt](t, c, "dev", runs)
	names := map[string]bool{}
	for _, n := range got.Nodes {
		names[n.Node] = n.Hidden
	}
	if code != http.StatusOK || got.ChosenNode != chosen || len(names) != 2 || names[chosen] || !names[""] {
		t.Errorf("of a Pod with a node a user with the role view gets %d %s, the node is %s", code, text, chosen)
	}
	for _, path := range []string{huge, traceAPI + "namespaces/shop/schedulingattempts/nothing", traceAPI + "namespaces/shop/schedulingattempts"} {
		if _, code, text = getAs[whykind.SchedulingAttempt](t, c, "eve", path); code != http.StatusForbidden {
			t.Errorf("who may not read Pods gets %d %s", code, text)
		}
	}
	_, code, _ = getAs[whykind.SchedulingAttempt](t, c, "dev", traceAPI+"namespaces/shop/schedulingattempts/nothing")
	if code != http.StatusNotFound {
		t.Errorf("a Pod that does not exist gives %d", code)
	}
	list, code, text := getAs[whykind.SchedulingAttemptList](t, c, "dev", traceAPI+"namespaces/shop/schedulingattempts")
	if code != http.StatusOK || len(list.Items) != 2 || list.Items[0].Nodes != nil {
		t.Errorf("%d %s", code, text)
	}
}

// TestExplanations checks that explanations are made with the permissions of the user who reads them.
func TestExplanations(t *testing.T) {
	c := explainedCluster(t)
	const huge = traceAPI + "namespaces/shop/explanations/pods:huge"
	got, code, text := getAs[whykind.Explanation](t, c, "admin", huge)
	if code != http.StatusOK || got.Kind != "Explanation" || got.Name != "pods:huge" || got.State != why.Stuck ||
		got.HopName != "schedule" || got.Resource != "pods" || got.Object.Name != "huge" || len(got.Nodes) != 2 || len(got.Unseen) != 0 {
		t.Errorf("%d %s", code, text)
	}
	got, code, text = getAs[whykind.Explanation](t, c, "dev", huge)
	if code != http.StatusOK || got.State != why.Stuck || len(got.Nodes) != 2 || !got.Nodes[0].Hidden {
		t.Errorf("a user with the role view gets %d %s", code, text)
	}
	for _, name := range []string{"pods:huge", "pods:nothing", "secrets:x", "configmaps:kube-root-ca.crt"} {
		_, code, text = getAs[whykind.Explanation](t, c, "eve", traceAPI+"namespaces/shop/explanations/"+name)
		if code != http.StatusForbidden {
			t.Errorf("who may not get %s gets %d %s", name, code, text)
		}
	}
	for name, want := range map[string]int{
		"pods:nothing": http.StatusNotFound, "noresource:x": http.StatusNotFound, "huge": http.StatusNotFound,
		"nodes:x": http.StatusNotFound, "secrets:x": http.StatusForbidden, "schedulingattempts.trace.proa.dev:huge": http.StatusNotFound,
	} {
		if _, code, text = getAs[whykind.Explanation](t, c, "dev", traceAPI+"namespaces/shop/explanations/"+name); code != want {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	_, code, text = getAs[whykind.Explanation](t, c, "dev", traceAPI+"namespaces/default/explanations/pods:x")
	if code != http.StatusForbidden {
		t.Errorf("another namespace: %d %s", code, text)
	}
}

// TestStuckList checks that the list of explanations has the objects that are stuck, and the resources that the user may not read.
func TestStuckList(t *testing.T) {
	c := explainedCluster(t)
	names := func(list *whykind.ExplanationList) (out []string) {
		for i := range list.Items {
			out = append(out, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
		return out
	}
	list, code, text := getAs[whykind.ExplanationList](t, c, "admin", traceAPI+"explanations")
	if got := strings.Join(names(list), " "); code != http.StatusOK || got != "shop/pods:huge" {
		t.Errorf("the administrator gets %q: %d %s", got, code, text)
	}
	list, code, text = getAs[whykind.ExplanationList](t, c, "dev", traceAPI+"namespaces/shop/explanations")
	// The role view does not allow to read definitions, but discovery says that there are no custom resources.
	if got := strings.Join(names(list), " "); code != http.StatusOK || got != "shop/pods:huge" {
		t.Errorf("a user with the role view gets %q: %d %s", got, code, text)
	}
	list, code, text = getAs[whykind.ExplanationList](t, c, "eve", traceAPI+"namespaces/shop/explanations")
	if got := strings.Join(names(list), " "); code != http.StatusOK || got != "shop/not-seen" || len(list.Items[0].Unseen) < 5 {
		t.Errorf("who may not read anything gets %q: %d %s", got, code, text)
	}
	if _, code, text = getAs[whykind.ExplanationList](t, c, "dev", traceAPI+"explanations"); code != http.StatusForbidden {
		t.Errorf("all namespaces: %d %s", code, text)
	}
}

// TestStuckCustomObjects checks that the list of explanations has custom objects that are stuck for a user who may list them and may not
// read their definitions, and says which custom objects the user may not list.
func TestStuckCustomObjects(t *testing.T) {
	defined := func(plural, kindName string) *apiextensionsv1.CustomResourceDefinition {
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict([]byte(`metadata: {name: `+plural+`.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: `+plural+`, kind: `+kindName+`}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`), d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	c := proatest.Start(t, proatest.Memory(), proatest.DefinitionObjects(defined("widgets", "Widget"), defined("gadgets", "Gadget")))
	for _, err := range []error{
		create(t, c, gr.Roles, &rbacv1.Role{}, `metadata: {name: dev, namespace: default}
rules:
- {verbs: [get, list], apiGroups: [example.com], resources: [widgets]}
- {verbs: [get, list], apiGroups: [trace.proa.dev], resources: [explanations]}`),
		create(t, c, gr.RoleBindings, &rbacv1.RoleBinding{}, `metadata: {name: dev, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: dev}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: dev}]`),
		create(t, c, schema.GroupResource{Group: "example.com", Resource: "widgets"}, &unstructured.Unstructured{}, `apiVersion: example.com/v1
kind: Widget
metadata: {name: broken, namespace: default}
status: {conditions: [{type: Ready, status: "False", reason: Broken, message: it is}]}`),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	list, code, text := getAs[whykind.ExplanationList](t, c, "dev", traceAPI+"namespaces/default/explanations")
	if code != http.StatusOK || len(list.Items) != 2 || list.Items[0].Name != "widgets.example.com:broken" {
		t.Fatalf("%d %s", code, text)
	}
	unseen := strings.Join(list.Items[1].Unseen, "\n")
	if !strings.Contains(unseen, "custom objects (gadgets.example.com): you may not read it") || strings.Contains(unseen, "definitions") ||
		strings.Contains(unseen, "widgets") {
		t.Errorf("not seen: %s", unseen)
	}
}

// TestAttemptsOfAnotherServer checks that a server whose scheduler does not run says so in scheduling attempts and explanations.
func TestAttemptsOfAnotherServer(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), proatest.Controllers("*", "-kube-scheduler"))
	if err := create(t, c, gr.Pods, &corev1.Pod{},
		"metadata: {name: waits, namespace: default}\nspec: {containers: [{name: c, image: i}]}"); err != nil {
		t.Fatal(err)
	}
	_, code, text := getAs[whykind.SchedulingAttempt](t, c, "admin", traceAPI+"namespaces/default/schedulingattempts/waits")
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "the scheduler runs on another server, or is not running") {
		t.Errorf("%d %s", code, text)
	}
	got, code, text := getAs[whykind.Explanation](t, c, "admin", traceAPI+"namespaces/default/explanations/pods:waits")
	if code != http.StatusOK || !strings.Contains(strings.Join(got.Unseen, "\n"), "the scheduler runs on another server") {
		t.Errorf("%d %s", code, text)
	}
}
