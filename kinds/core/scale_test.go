package core

import (
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestScale(t *testing.T) {
	def := ReplicationControllers()
	sub := def.Sub("scale")
	rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "n", UID: "u", ResourceVersion: "7"}}
	rc.Spec.Replicas, rc.Spec.Selector, rc.Status.Replicas = new(int32(3)), map[string]string{"a": "b", "c": "d"}, 2
	view, err := sub.View(rc)
	if err != nil {
		t.Fatal(err)
	}
	scale := view.(*autoscalingv1.Scale)
	if scale.Spec.Replicas != 3 || scale.Status.Replicas != 2 || scale.Status.Selector != "a=b,c=d" || scale.ResourceVersion != "7" ||
		scale.UID != "u" {
		t.Errorf("the scale is %+v", scale)
	}
	scale.Spec.Replicas = 5
	if err := sub.Change(rc, scale); err != nil || *rc.Spec.Replicas != 5 {
		t.Errorf("scaled to %d, %v", *rc.Spec.Replicas, err)
	}
	scale.Spec.Replicas = -1
	if err := sub.Change(rc, scale); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0") {
		t.Errorf("scaled below zero: %v", err)
	}
}
