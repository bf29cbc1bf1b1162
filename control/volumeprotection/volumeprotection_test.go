package volumeprotection

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/podrefs"
)

func pod(node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{
			{Name: "a",
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "b", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func TestClaimsInUse(t *testing.T) {
	if got := podrefs.VolumeClaims(pod("", "")); !slices.Equal(got, []string{"data", "p-b"}) {
		t.Errorf("claims %v", got)
	}
	for _, c := range []struct {
		node  string
		phase corev1.PodPhase
		claim string
		want  bool
	}{
		{"n", corev1.PodRunning, "data", true},
		{"n", corev1.PodPending, "p-b", true},
		{"n", corev1.PodRunning, "other", false},
		{"", corev1.PodPending, "data", false},
		{"n", corev1.PodSucceeded, "data", false},
		{"n", corev1.PodFailed, "data", false},
	} {
		if got := isClaimInUse(pod(c.node, c.phase), c.claim); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
