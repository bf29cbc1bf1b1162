package schema

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/kubernetes/scheme"
)

// versionConverter converts the few fields that the tests use between versions of two kinds.
type versionConverter struct{ runtime.ObjectConvertor }

func (c versionConverter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if u, ok := in.(*unstructured.Unstructured); ok {
		typed, err := scheme.Scheme.New(u.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
			return nil, err
		}
		in = typed
	}
	var out runtime.Object
	switch gv := target.(schema.GroupVersion); x := in.(type) {
	case *autoscalingv1.HorizontalPodAutoscaler:
		out = x
		if gv.Version == "v2" {
			out = &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: x.ObjectMeta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				MinReplicas: x.Spec.MinReplicas, MaxReplicas: x.Spec.MaxReplicas}}
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		out = x
		if gv.Version == "v1" {
			out = &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: x.ObjectMeta, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
				MinReplicas: x.Spec.MinReplicas, MaxReplicas: x.Spec.MaxReplicas}}
		}
	case *corev1.Event:
		out = x
		if gv.Group != "" {
			out = &eventsv1.Event{ObjectMeta: x.ObjectMeta, Reason: x.Reason, Note: x.Message}
		}
	case *eventsv1.Event:
		out = x
		if gv.Group == "" {
			out = &corev1.Event{ObjectMeta: x.ObjectMeta, Reason: x.Reason, Message: x.Note}
		}
	}
	gvks, _, err := scheme.Scheme.ObjectKinds(out)
	if err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(gvks[0])
	return out, nil
}

func TestTwoVersionsOfAKind(t *testing.T) {
	o := New(scheme.Scheme, versionConverter{scheme.Scheme}, nil)
	hub := autoscalingv2.SchemeGroupVersion
	v2 := o.For(Target{Kind: hub.WithKind("HorizontalPodAutoscaler"), Hub: hub, Reset: []string{"status"}})
	v1 := o.For(Target{Kind: autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), Hub: hub, Reset: []string{"status"}})

	created, err := v2.Update(&autoscalingv2.HorizontalPodAutoscaler{}, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "h", Namespace: "n"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: new(int32(1)), MaxReplicas: 3},
	}, "creator")
	if err != nil {
		t.Fatal(err)
	}
	live := created.(*autoscalingv2.HorizontalPodAutoscaler)
	live.UID = "u"
	config := parseJSON(t,
		`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"h","namespace":"n"},"spec":{"maxReplicas":5}}`)
	if _, err := v1.Apply(live, config, "applier", false); !apierrors.IsConflict(err) {
		t.Fatalf("want a conflict across versions, got %v", err)
	}
	out, err := v1.Apply(live, config, "applier", true)
	if err != nil {
		t.Fatal(err)
	}
	got := out.(*autoscalingv2.HorizontalPodAutoscaler)
	if got.Spec.MaxReplicas != 5 || *got.Spec.MinReplicas != 1 {
		t.Errorf("applied: %+v", got.Spec)
	}
	if e := entry(t, got, "applier", metav1.ManagedFieldsOperationApply); e.APIVersion != "autoscaling/v1" {
		t.Errorf("entry: %+v", e)
	}
	next := got.DeepCopy()
	next.Spec.MinReplicas = new(int32(2))
	if _, err := v1.Update(got, next, "updater"); err != nil {
		t.Fatal(err)
	}
	if e := entry(t, next, "updater",
		metav1.ManagedFieldsOperationUpdate); string(e.FieldsV1.GetRawBytes()) != `{"f:spec":{"f:minReplicas":{}}}` {
		t.Errorf("updater owns %s", e.FieldsV1.GetRawBytes())
	}
}

func TestEventInTwoGroups(t *testing.T) {
	o := New(scheme.Scheme, versionConverter{scheme.Scheme}, nil)
	hub := corev1.SchemeGroupVersion
	other := o.For(Target{Kind: eventsv1.SchemeGroupVersion.WithKind("Event"), Hub: hub})
	ev := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "n"}, Reason: "R", Message: "m"}
	if _, err := other.Update(&corev1.Event{}, ev, "kubelet"); err != nil {
		t.Fatal(err)
	}
	e := entry(t, ev, "kubelet", metav1.ManagedFieldsOperationUpdate)
	if e.APIVersion != "events.k8s.io/v1" || string(e.FieldsV1.GetRawBytes()) != `{"f:note":{},"f:reason":{}}` {
		t.Errorf("entry %+v, fields %s", e, e.FieldsV1.GetRawBytes())
	}
}

// customConverter creates and converts objects of a custom resource with one version.
type customConverter struct{ runtime.ObjectConvertor }

func (customConverter) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
func (customConverter) Default(runtime.Object) {}
func (customConverter) New(schema.GroupVersionKind) (runtime.Object, error) {
	return &unstructured.Unstructured{Object: map[string]any{}}, nil
}

func TestCustomResource(t *testing.T) {
	o := New(scheme.Scheme, nil, nil)
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	m := o.Custom(Target{Kind: gvk, Reset: []string{"status"}}, CustomTypes{
		Types: managedfields.NewDeducedTypeConverter(), Convertor: customConverter{}, Defaulter: customConverter{},
		Creater: customConverter{},
	})
	empty := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing"}}
	body := func(size string) map[string]any {
		return parseJSON(t,
			`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t"},"spec":{"size":"`+size+`"},"status":{"x":"y"}}`)
	}
	obj := &unstructured.Unstructured{Object: body("1")}
	if _, err := m.Update(empty, obj, "creator"); err != nil {
		t.Fatal(err)
	}
	e := entry(t, obj, "creator", metav1.ManagedFieldsOperationUpdate)
	if string(e.FieldsV1.GetRawBytes()) != `{"f:spec":{".":{},"f:size":{}}}` {
		t.Errorf("creator owns %s", e.FieldsV1.GetRawBytes())
	}
	obj.SetUID("u")
	if _, err := m.Apply(obj, body("2"), "applier", false); !apierrors.IsConflict(err) {
		t.Errorf("want a conflict, got %v", err)
	}
}
