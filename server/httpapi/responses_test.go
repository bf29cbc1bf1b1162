package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server"
	"proa.dev/server/healthz"
	"proa.dev/server/responsewriter"
)

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func TestDryRunReturnsObjectToBeStored(t *testing.T) {
	r := newRig(t)
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}
	res, err := r.request("create", "csinodes.storage.k8s.io", "", "", func(q *server.Request) { q.Object, q.Options.DryRun = node, true })
	if err != nil {
		t.Fatal(err)
	}
	if d := res.Object.(*storagev1.CSINode).Spec.Drivers; d != nil {
		t.Errorf("drivers are %#v: the store does not tell an empty list from none", d)
	}
}

func TestScalesAreApplied(t *testing.T) {
	r := newRig(t)
	gr := runtimeschema.GroupResource{Resource: "replicationcontrollers"}
	template := podTemplate()
	r.create(gr, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"},
		Spec: corev1.ReplicationControllerSpec{Template: &template}})
	_, err := r.request("patch", gr.Resource, "ns", "x", func(q *server.Request) {
		q.Sub, q.Patch, q.Options.Manager = q.Def.Sub("scale"), types.ApplyPatchType, "scaler"
		q.Body = []byte(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"x"},"spec":{"replicas":3}}`)
		q.Options.Force = true
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := r.State.Get(t.Context(), gr, "ns", "x")
	if err != nil {
		t.Fatal(err)
	}
	rc := o.(*corev1.ReplicationController)
	i := slices.IndexFunc(rc.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "scaler" })
	if *rc.Spec.Replicas != 3 || i < 0 {
		t.Fatalf("%d replicas, owned by %+v", *rc.Spec.Replicas, rc.ManagedFields)
	}
	e := rc.ManagedFields[i]
	if e.Subresource != "scale" || e.Operation != metav1.ManagedFieldsOperationApply || e.APIVersion != "v1" || e.Time != nil ||
		e.FieldsV1.GetRawString() != `{"f:spec":{"f:replicas":{}}}` {
		t.Errorf("the owner is %+v", e)
	}
}

func TestDeleteCollectionReturnsObjects(t *testing.T) {
	r := newRig(t)
	gr := runtimeschema.GroupResource{Group: "batch", Resource: "jobs"}
	template := podTemplate()
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	r.create(gr, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}, Spec: batchv1.JobSpec{Template: template}})
	res, err := r.request("deletecollection", gr.String(), "ns", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(res.List.Items); n != 1 || res.List.Items[0].Object().GetDeletionTimestamp() != nil {
		t.Errorf("%d items, the first %+v", n, res.List.Items)
	}
	// Orphaning is the default for Jobs, so the object still exists.
	o, err := r.State.Get(t.Context(), gr, "ns", "x")
	if err != nil || o.GetDeletionTimestamp() == nil {
		t.Errorf("the deletion did not begin: %v", err)
	}
}

func TestManagedFieldsOfServerSetFields(t *testing.T) {
	r := newRig(t)
	res, err := r.request("create", "subjectaccessreviews.authorization.k8s.io", "", "", func(q *server.Request) {
		q.Object = &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "u", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"},
		}}
	})
	if err != nil {
		t.Fatal(err)
	}
	if m := res.Object.(kind.Object).GetManagedFields(); len(m) != 1 {
		t.Errorf("a review is owned by %+v", m)
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: podTemplate(),
	}}
	out := r.create(runtimeschema.GroupResource{Group: "apps", Resource: "daemonsets"}, set)
	if out.GetAnnotations()[appsv1.DeprecatedTemplateGeneration] != "1" ||
		!slices.ContainsFunc(out.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
			return bytes.Contains(e.FieldsV1.GetRawBytes(), []byte(`"f:deprecated.daemonset.template.generation"`))
		}) {
		t.Errorf("the number of the template is not owned: %+v", out.GetManagedFields())
	}
}

func TestUpdateWithoutResourceVersionNamesResource(t *testing.T) {
	r := newRig(t)
	gr := runtimeschema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}
	r.create(gr, lease.DeepCopy())
	_, err := r.request("update", gr.String(), "ns", "x", func(q *server.Request) { q.Object = lease })
	var st apierrors.APIStatus
	if !errors.As(err, &st) || st.Status().Details == nil || st.Status().Details.Kind != "leases" {
		t.Errorf("refused with %v", err)
	}
}

// TestImmediatelyDeletedPodsGetDeletionTimestamp checks that a Pod that is deleted without a grace period first gets a deletion
// timestamp, so that watchers see it in the last state of the Pod.
func TestImmediatelyDeletedPodsGetDeletionTimestamp(t *testing.T) {
	r := newRig(t)
	gr := runtimeschema.GroupResource{Resource: "pods"}
	created := r.create(gr, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}, Spec: podTemplate().Spec})
	rev, err := strconv.ParseInt(created.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		_, err := r.request("delete", gr.Resource, "ns", "x", func(q *server.Request) {
			q.Options.Delete, q.Options.DryRun = &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, dry
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	def := r.State.Def(gr)
	var changes []kv.Change
	for b, err := range r.store.Watch(t.Context(), def.Prefix(), rev) {
		if err != nil {
			t.Fatal(err)
		}
		if changes = append(changes, b.Changes...); len(changes) >= 2 {
			break
		}
	}
	last, err := r.State.Codec.Load(def, changes[1].Prev)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes[0].Value) == 0 || len(changes[1].Value) != 0 || last.GetDeletionTimestamp() == nil ||
		*last.GetDeletionGracePeriodSeconds() != 0 {
		t.Errorf("%d changes, the last state is %+v", len(changes), last)
	}
}

func TestAllocatedAddressesHaveManagedFields(t *testing.T) {
	r := newRig(t)
	s := r.create(runtimeschema.GroupResource{Resource: "services"}, service("x", 0)).(*corev1.Service)
	o, err := r.State.Get(t.Context(), runtimeschema.GroupResource{Group: "networking.k8s.io", Resource: "ipaddresses"}, "",
		s.Spec.ClusterIP)
	if err != nil {
		t.Fatal(err)
	}
	if m := o.GetManagedFields(); len(m) != 1 || m[0].Manager != server.FieldManager ||
		!bytes.Contains(m[0].FieldsV1.GetRawBytes(), []byte("f:parentRef")) {
		t.Errorf("the address is owned by %+v", m)
	}
}

func TestRootPathListsGroups(t *testing.T) {
	r := newRig(t)
	answer := httptest.NewRecorder()
	(&healthz.Endpoints{State: r.State}).Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	for _, path := range []string{`"/apis/apps"`, `"/apis/autoscaling/v1"`, `"/apis/autoscaling/v2"`, `"/healthz"`} {
		if !strings.Contains(answer.Body.String(), path) {
			t.Errorf("no %s in %s", path, answer.Body)
		}
	}
}

func TestPathsOfUnservedGroups(t *testing.T) {
	r := newRig(t)
	r.Paths = (&healthz.Endpoints{}).Handler()
	for path, want := range map[string]string{
		"/apis/none.example.com": "text/plain; charset=utf-8", "/apis/none.example.com/v1": "text/plain; charset=utf-8",
		"/apis/none.example.com/v1/things": "text/plain; charset=utf-8",
		"/apis/apps/v9":                    "application/json", "/apis/apps/v1/things": "application/json", "/api/v9": "application/json",
	} {
		req, answer := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil), httptest.NewRecorder()
		w := &responsewriter.Writer{ResponseWriter: answer}
		if rt := routeOf(http.MethodGet, path); rt.resource {
			r.serveResource(t.Context(), w, req, rt, &requester{Info: r.who, start: time.Now()})
		} else {
			r.servePath(w, req, r.who)
		}
		if got := answer.Header().Get("Content-Type"); answer.Code != http.StatusNotFound || got != want {
			t.Errorf("%s answers %d as %s, want %s", path, answer.Code, got, want)
		}
	}
}

// TestDuplicateYAMLKeysCauseWarnings checks that there is a Warning header for each duplicate key that the YAML reader finds.
func TestDuplicateYAMLKeysCauseWarnings(t *testing.T) {
	r := newRig(t)
	r.Handler.Authn = fixedUser{who: r.who}
	body := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: twice}\ndata:\n  a: b\n  a: c\n  d: e\n  d: f\n"
	want := []string{`299 - "line 6: key \"a\" already set in map"`, `299 - "line 8: key \"d\" already set in map"`}
	for method, pathAndType := range map[string][2]string{
		"POST":  {"/api/v1/namespaces/ns/configmaps?dryRun=All", "application/yaml"},
		"PATCH": {"/api/v1/namespaces/ns/configmaps/twice?dryRun=All&fieldManager=m", "application/apply-patch+yaml"},
	} {
		req := httptest.NewRequestWithContext(t.Context(), method, pathAndType[0], strings.NewReader(body))
		req.Header.Set("Content-Type", pathAndType[1])
		w := httptest.NewRecorder()
		if r.ServeHTTP(w, req); w.Code != http.StatusCreated || !slices.Equal(w.Header()["Warning"], want) {
			t.Errorf("%s: %d %q, want %q\n%s", method, w.Code, w.Header()["Warning"], want, w.Body)
		}
	}
}

// TestWarningHeadersAreBounded checks that however many warnings a request has, their headers have at most 4 KiB, and a short one
// after a long one is still sent.
func TestWarningHeadersAreBounded(t *testing.T) {
	q := &server.Request{}
	q.Warn("first")
	q.Warn(strings.Repeat("x", 5000))
	q.Warn("first")
	for i := range 1000 {
		q.Warn(fmt.Sprintf("%d %s", i, strings.Repeat("y", 80)))
	}
	w := httptest.NewRecorder()
	writeWarnings(w, q)
	got, size := w.Header()["Warning"], 0
	for _, h := range got {
		size += len(h)
	}
	if size > 4<<10 || len(got) < 3 || got[0] != `299 - "first"` || !strings.HasPrefix(got[1], `299 - "0 y`) {
		t.Errorf("%d headers of %d bytes: %.300q", len(got), size, got)
	}
	if n := strings.Count(strings.Join(got, " "), `"first"`); n != 1 {
		t.Errorf("the same warning is sent %d times", n)
	}
}

// TestWatchRefusesContinueToken checks that a watch cannot have a continue token.
func TestWatchRefusesContinueToken(t *testing.T) {
	r := newRig(t)
	r.Handler.Authn = fixedUser{who: r.who}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET",
		"/api/v1/namespaces/ns/configmaps?watch=1&timeoutSeconds=1&continue=abc", nil))
	if want := "resourceVersionMatch is forbidden when continue is provided"; w.Code != http.StatusUnprocessableEntity ||
		!strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
}

// TestWatchesOfOneObject checks that a watch with a name in its path selects that object, and refuses a field selector for another
// one.
func TestWatchesOfOneObject(t *testing.T) {
	_, pods := podHandler(t)
	for query, want := range map[string]string{
		"":                                     "",
		"fieldSelector=metadata.name%3Dmine":   "",
		"fieldSelector=metadata.name%3Dother":  "fieldSelector metadata.name doesn't match requested name",
		"fieldSelector=metadata.name!%3Dmine":  "fieldSelector metadata.name doesn't match requested name",
		"fieldSelector=spec.nodeName%3Dn":      "fieldSelector metadata.name doesn't match requested name",
		"labelSelector=a%3Db&limit=1&watch=no": "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		r := &server.Request{Verb: "watch", Def: pods, Namespace: "ns", Name: "mine"}
		switch err := parseOptions(r, q, false); {
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%s: %v, want %s", query, err, want)
		case want == "" && (err != nil || r.Options.List.ExactField("metadata.name") != "mine"):
			t.Errorf("%s: %v, selects %v", query, err, r.Options.List.Fields)
		}
	}
}

// TestDiscoveryAllowsOnlyGET checks that discovery and version answer other methods than GET with 405.
func TestDiscoveryAllowsOnlyGET(t *testing.T) {
	r := newRig(t)
	r.Handler.Authn = fixedUser{who: r.who}
	for _, path := range []string{"/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", path, nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
