package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestScale(t *testing.T) {
	d := Deployments()
	object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7"}}
	object.Spec.Replicas = new(int32(2))
	object.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	object.Status.Replicas = 1
	view, err := d.Sub("scale").View(object)
	if err != nil {
		t.Fatal(err)
	}
	scale := view.(*autoscalingv1.Scale)
	if scale.Spec.Replicas != 2 || scale.Status.Replicas != 1 || scale.Status.Selector != "a=b" || scale.ResourceVersion != "7" {
		t.Errorf("%+v", scale)
	}
	for _, c := range []struct {
		name  string
		scale autoscalingv1.Scale
		is    func(error) bool
	}{
		{"below zero", autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: -1}}, apierrors.IsInvalid},
		{"right", autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 5}}, func(err error) bool { return err == nil }},
	} {
		if err := d.Sub("scale").Change(object, &c.scale); !c.is(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if *object.Spec.Replicas != 5 {
		t.Errorf("%d replicas", *object.Spec.Replicas)
	}
}
