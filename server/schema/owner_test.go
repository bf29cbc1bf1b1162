package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

func newDeploymentManager(o *Owner) *Manager {
	return o.For(Target{Kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Reset: []string{"status"}})
}

func parseJSON(t testing.TB, text string) map[string]any {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func deployment(t testing.TB, spec string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	text := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"n"},"spec":` + spec + `}`
	if err := json.Unmarshal([]byte(text), d); err != nil {
		t.Fatal(err)
	}
	return d
}

const twoReplicas = `{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
	`"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80,"protocol":"TCP"}]}]}}}`

func entry(t testing.TB, obj metav1.Object, manager string, op metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
	t.Helper()
	for _, e := range obj.GetManagedFields() {
		if e.Manager == manager && e.Operation == op {
			return e
		}
	}
	t.Fatalf("no entry of %s/%s in %+v", manager, op, obj.GetManagedFields())
	return metav1.ManagedFieldsEntry{}
}

func TestUpdateOnCreateOwnsAll(t *testing.T) {
	o := New(scheme.Scheme, nil, nil)
	d := deployment(t, twoReplicas)
	d.Status.Replicas = 7 // the strategy of the write resets it, so it has no owner
	out, err := newDeploymentManager(o).Update(&appsv1.Deployment{}, d, "kubectl-create")
	if err != nil {
		t.Fatal(err)
	}
	e := entry(t, out.(*appsv1.Deployment), "kubectl-create", metav1.ManagedFieldsOperationUpdate)
	want := `{"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},` +
		`"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{},"f:ports":{".":{},` +
		`"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{}}}}}}}`
	if got := string(e.FieldsV1.GetRawBytes()); !sameJSON(t, got, want) {
		t.Errorf("fields\n got %s\nwant %s", got, want)
	}
	if e.APIVersion != "apps/v1" || e.FieldsType != "FieldsV1" || e.Time == nil || e.Subresource != "" {
		t.Errorf("entry: %+v", e)
	}
}

func sameJSON(t testing.TB, a, b string) bool {
	t.Helper()
	x, err := json.Marshal(parseJSON(t, a))
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(parseJSON(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

func TestApply(t *testing.T) {
	o := New(scheme.Scheme, nil, nil)
	m := newDeploymentManager(o)
	created, err := m.Update(&appsv1.Deployment{}, deployment(t, twoReplicas), "kubectl-create")
	if err != nil {
		t.Fatal(err)
	}
	live := created.(*appsv1.Deployment)
	live.UID = "u"
	apply := func(spec string, force Force) (runtime.Object, error) {
		return m.Apply(live, parseJSON(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":`+spec+`}`), "tester",
			force)
	}

	_, err = apply(`{"replicas":3}`, false)
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsConflict(err) {
		t.Fatalf("want a conflict, got %v", err)
	}
	text := `Apply failed with 1 conflict: conflict with "kubectl-create" using apps/v1: .spec.replicas`
	if err.Error() != text {
		t.Errorf("conflict text: %s", err)
	}
	causes := status.Status().Details.Causes
	if len(causes) != 1 || causes[0].Type != metav1.CauseTypeFieldManagerConflict || causes[0].Field != ".spec.replicas" ||
		causes[0].Message != `conflict with "kubectl-create" using apps/v1` {
		t.Errorf("causes: %+v", causes)
	}
	if *live.Spec.Replicas != 2 {
		t.Error("a failed apply changed the live object")
	}

	out, err := apply(`{"replicas":3,"template":{"spec":{"containers":[{"name":"c","env":[{"name":"E","value":"v"}]}]}}}`, true)
	if err != nil {
		t.Fatal(err)
	}
	d := out.(*appsv1.Deployment)
	if *d.Spec.Replicas != 3 || d.Spec.Template.Spec.Containers[0].Image != "i" || d.Spec.Template.Spec.Containers[0].Env[0].Value != "v" {
		t.Errorf("merged: %+v", d.Spec)
	}
	if e := entry(t, d, "tester", metav1.ManagedFieldsOperationApply); !strings.Contains(string(e.FieldsV1.GetRawBytes()), `"f:replicas"`) {
		t.Errorf("tester owns %s", e.FieldsV1.GetRawBytes())
	}
	if e := entry(t, d, "kubectl-create", metav1.ManagedFieldsOperationUpdate); strings.Contains(string(e.FieldsV1.GetRawBytes()),
		`"f:replicas"`) {
		t.Errorf("kubectl-create still owns replicas: %s", e.FieldsV1.GetRawBytes())
	}

	_, err = m.Apply(live, parseJSON(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","managedFields":[{}]}}`), "x",
		false)
	if !apierrors.IsBadRequest(err) || err.Error() != "metadata.managedFields must be nil" {
		t.Errorf("managedFields in a patch: %v", err)
	}
	_, err = m.Apply(live, parseJSON(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"d"}}`), "x", false)
	if !apierrors.IsBadRequest(err) || err.Error() != "invalid object type: /v1, Kind=Pod" {
		t.Errorf("another kind in a patch: %v", err)
	}
}

func TestApplyCreatesAndRemoves(t *testing.T) {
	o := New(scheme.Scheme, nil, nil)
	m := o.For(Target{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")})
	out, err := m.Apply(&corev1.ConfigMap{}, parseJSON(t,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"n"},"data":{"a":"1","b":"2"}}`), "me", false)
	if err != nil {
		t.Fatal(err)
	}
	c := out.(*corev1.ConfigMap)
	if c.Name != "c" || c.Data["b"] != "2" || len(c.ManagedFields) != 1 {
		t.Fatalf("created: %+v", c)
	}
	c.UID = "u"
	out, err = m.Apply(c, parseJSON(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"n"},"data":{"a":"1"}}`),
		"me", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := out.(*corev1.ConfigMap).Data["b"]; ok {
		t.Error("a field that its only owner no longer applies must go")
	}
}

func TestUpdateRules(t *testing.T) {
	o := New(scheme.Scheme, nil, nil)
	m := newDeploymentManager(o)
	created, err := m.Update(&appsv1.Deployment{}, deployment(t, twoReplicas), "a")
	if err != nil {
		t.Fatal(err)
	}
	live := created.(*appsv1.Deployment)
	live.UID = "u"
	past := metav1.NewTime(time.Unix(1000, 0).UTC())
	live.ManagedFields[0].Time = &past
	write := func(change func(*appsv1.Deployment), manager string) *appsv1.Deployment {
		t.Helper()
		next := live.DeepCopy()
		change(next)
		out, err := m.Update(live, next, manager)
		if err != nil {
			t.Fatal(err)
		}
		return out.(*appsv1.Deployment)
	}

	same := write(func(d *appsv1.Deployment) { d.ManagedFields = nil }, "b")
	if len(same.ManagedFields) != 1 || !same.ManagedFields[0].Time.Equal(&past) {
		t.Errorf("a write without change: %+v", same.ManagedFields)
	}
	taken := write(func(d *appsv1.Deployment) { *d.Spec.Replicas = 5 }, "b")
	if e := entry(t, taken, "b", metav1.ManagedFieldsOperationUpdate); string(e.FieldsV1.GetRawBytes()) != `{"f:spec":{"f:replicas":{}}}` {
		t.Errorf("b owns %s", e.FieldsV1.GetRawBytes())
	}
	for name, list := range map[string][]metav1.ManagedFieldsEntry{"empty list": {}, "one empty entry": {{}}} {
		if got := write(func(d *appsv1.Deployment) { d.ManagedFields = list }, "b"); len(got.ManagedFields) != 0 {
			t.Errorf("%s should reset: %+v", name, got.ManagedFields)
		}
	}
	bad := write(func(d *appsv1.Deployment) {
		d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x", Operation: "Nonsense", APIVersion: "apps/v1"}}
	}, "b")
	if len(bad.ManagedFields) != 1 || bad.ManagedFields[0].Manager != "a" {
		t.Errorf("unreadable managedFields should fall back to the live ones: %+v", bad.ManagedFields)
	}
}

func TestClientSideApplyMigrates(t *testing.T) {
	o := New(scheme.Scheme, nil, nil)
	m := o.For(Target{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")})
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n", Annotations: map[string]string{
		corev1.LastAppliedConfigAnnotation: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"n"},"data":{"a":"1"}}`,
	}}, Data: map[string]string{"a": "1"}}
	created, err := m.Update(&corev1.ConfigMap{}, c, "kubectl-client-side-apply")
	if err != nil {
		t.Fatal(err)
	}
	live := created.(*corev1.ConfigMap)
	live.UID = "u"
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"n"},"data":{"a":"2"}}`
	if _, err := m.Apply(live, parseJSON(t, body), "other", false); !apierrors.IsConflict(err) {
		t.Errorf("another manager must conflict, got %v", err)
	}
	out, err := m.Apply(live, parseJSON(t, body), "kubectl", false)
	if err != nil {
		t.Fatal(err)
	}
	got := out.(*corev1.ConfigMap)
	if got.Data["a"] != "2" || !strings.Contains(got.Annotations[corev1.LastAppliedConfigAnnotation], `"a":"2"`) {
		t.Errorf("migrated: %+v", got)
	}
}

func TestUnchangedFieldsKeepTheirTime(t *testing.T) {
	stamp := func(sec int64, data string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", Time: new(metav1.Unix(sec, 0))}}},
			Data:       map[string]string{"a": data},
		}
	}
	same := stamp(2, "x")
	KeepTimes(stamp(1, "x"), same)
	if same.ManagedFields[0].Time.Unix() != 1 {
		t.Error("a write that changes nothing must keep its stamp")
	}
	other := stamp(2, "y")
	KeepTimes(stamp(1, "x"), other)
	if other.ManagedFields[0].Time.Unix() != 2 {
		t.Error("a write that changes data must move its stamp")
	}
}

func TestManagedFieldsAfterAdmission(t *testing.T) {
	good := []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1"}}
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "broken"}}}}
	if w := AfterAdmission(c, good); !strings.HasPrefix(w, ".metadata.managedFields was in an invalid state after admission;") ||
		c.ManagedFields[0].Manager != "m" {
		t.Errorf("warning %q, fields %+v", w, c.ManagedFields)
	}
	if w := AfterAdmission(c, nil); w != "" {
		t.Errorf("good fields gave warning %q", w)
	}
}

func TestManagerName(t *testing.T) {
	for _, c := range []struct{ param, agent, want string }{
		{"me", "kubectl/v1.37", "me"},
		{"", "kubectl/v1.37 (linux)", "kubectl"},
		{"", "no slash", "no slash"},
		{"", "b\x00a\nd/1", "bad"},
		{"", strings.Repeat("é", 100), strings.Repeat("é", 64)},
		{"", "", ""},
	} {
		if got := ManagerName(c.param, c.agent); got != c.want {
			t.Errorf("ManagerName(%q, %q) = %q, want %q", c.param, c.agent, got, c.want)
		}
	}
}

// TestFieldsOfVeryLongListsAreNotTracked checks objects for which the library takes minutes.
func TestFieldsOfVeryLongListsAreNotTracked(t *testing.T) {
	data, owned := map[string]any{}, strings.Builder{}
	for i := range maxTracked + 1 {
		data[strconv.Itoa(i)] = ""
		fmt.Fprintf(&owned, `,"f:%d":{}`, i)
	}
	labels := map[string]string{}
	for i := range maxTracked {
		labels[strconv.Itoa(i)] = ""
	}
	m := New(scheme.Scheme, nil, nil).For(Target{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")})
	config := func(data map[string]any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": data}
	}
	few := map[string]any{"a": "b"}
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u"}}
	entries := []metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1",
		FieldsType: "FieldsV1",
		FieldsV1:   &metav1.FieldsV1{Raw: []byte(`{"f:data":{".":{}` + owned.String() + `}}`)}}}
	for what, test := range map[string]struct {
		live   *corev1.ConfigMap
		config map[string]any
	}{
		"a configuration":  {live, config(data)},
		"a stored object":  {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: labels, Annotations: labels}}, config(few)},
		"its owned fields": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", ManagedFields: entries}}, config(few)},
	} {
		if _, err := m.Apply(test.live, test.config, "me", true); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("apply, %s: %v", what, err)
		}
	}
	if _, err := m.Apply(live, config(few), "me", true); err != nil {
		t.Error(err)
	}
	next := live.DeepCopy()
	next.ManagedFields = entries
	out, err := m.slowUpdate(live, next, "me")
	if err == nil || len(out.(*corev1.ConfigMap).ManagedFields) != 0 {
		t.Errorf("update: %v", err)
	}
}
