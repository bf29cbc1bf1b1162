package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTolerates(t *testing.T) {
	taint := &corev1.Taint{Key: "k", Value: "5", Effect: corev1.TaintEffectNoSchedule}
	for _, c := range []struct {
		t    corev1.Toleration
		want bool
	}{
		{corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists}, false},
		{corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, false},
		{corev1.Toleration{Key: "k", Value: "5"}, true},
		{corev1.Toleration{Key: "k", Operator: corev1.TolerationOpEqual, Value: "6"}, false},
		{corev1.Toleration{Key: "k", Operator: corev1.TolerationOpLt, Value: "9"}, false},
	} {
		if got := Tolerates(&c.t, taint); got != c.want {
			t.Errorf("%+v: %v", c.t, got)
		}
	}
}
