package codec_test

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
)

func TestErrorForAnotherKind(t *testing.T) {
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := codec.New(scheme)
	for _, v := range []struct {
		body, want string
		into       kind.Object
	}{
		{`{"apiVersion":"v1","kind":"Pod"}`, "converting (v1.Pod) to (autoscaling.Scale): unknown conversion", &autoscalingv1.Scale{}},
		{`{"apiVersion":"apps/v1","kind":"Deployment"}`, "converting (v1.Deployment) to (core.Pod): unknown conversion", &corev1.Pod{}},
	} {
		gvks, _, err := scheme.ObjectKinds(v.into)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Decode([]byte(v.body), codec.JSON, gvks[0], v.into, true); err == nil || err.Error() != v.want {
			t.Errorf("%s: %v, want %s", v.body, err, v.want)
		}
	}
}
