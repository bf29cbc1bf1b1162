package volumekind

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestVolumePhaseTime(t *testing.T) {
	earlier := metav1.NewTime(time.Unix(1, 0))
	old := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &earlier}}
	for _, test := range []struct {
		name  string
		phase corev1.PersistentVolumePhase
		sent  *metav1.Time
		kept  bool
	}{
		{"same phase", corev1.VolumePending, nil, true},
		{"another phase", corev1.VolumeBound, nil, false},
		{"another phase, time passed along", corev1.VolumeBound, &earlier, false},
	} {
		v := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: test.phase, LastPhaseTransitionTime: test.sent}}
		PersistentVolumes().Sub("status").Prepare(v, old)
		if at := v.Status.LastPhaseTransitionTime; at == nil || at.Equal(&earlier) != test.kept {
			t.Errorf("%s: got %v", test.name, at)
		}
	}
}

func TestUpdateOfBoundClaim(t *testing.T) {
	claim := func(size, class string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "u", ResourceVersion: "1",
				CreationTimestamp: metav1.NewTime(time.Unix(1, 0))},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: "v",
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound,
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
		}
		if class != "-" {
			c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName = &class, new("x")
		}
		return c
	}
	d := PersistentVolumeClaims()
	for _, test := range []struct {
		name     string
		now, old *corev1.PersistentVolumeClaim
		want     string
	}{
		{"grows", claim("3Gi", "-"), claim("2Gi", "-"), ""},
		{"reverts an expansion", claim("3Gi", "-"), claim("5Gi", "-"), ""},
		{"shrinks", claim("2Gi", "-"), claim("5Gi", "-"), "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"},
		{"changes its class", claim("2Gi", "new"), claim("2Gi", "x"), ""},
		{"loses its class", claim("2Gi", ""), claim("2Gi", "x"), "spec.volumeAttributesClassName: Forbidden: update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"},
	} {
		d.Default(test.now)
		d.Default(test.old)
		d.Prepare(test.now, test.old)
		errs := d.Validate(test.now, test.old)
		if text := ""; len(errs) > 0 || test.want != "" {
			if len(errs) > 0 {
				text = errs[0].Error()
			}
			if text != test.want {
				t.Errorf("%s: got %v, want %s", test.name, errs, test.want)
			}
		}
	}
}

func TestEqualAffinity(t *testing.T) {
	affinity := func(keys ...string) *corev1.VolumeNodeAffinity {
		term := corev1.NodeSelectorTerm{}
		for _, key := range keys {
			term.MatchExpressions = append(term.MatchExpressions,
				corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists})
		}
		return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}
	}
	for _, test := range []struct {
		now, old string
		same     bool
	}{
		{"a b", "a b", true},
		{"topology.kubernetes.io/zone b", "failure-domain.beta.kubernetes.io/zone b", true},
		{"failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone", false},
		{"kubernetes.io/os c", "beta.kubernetes.io/os b", false},
		{"a", "a b", false},
	} {
		if got := equalAffinity(affinity(strings.Fields(test.now)...), affinity(strings.Fields(test.old)...)); got != test.same {
			t.Errorf("%s from %s: got %v", test.now, test.old, got)
		}
	}
}
