package statefulset

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
)

func TestHasClaim(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}}
	for claim, want := range map[string]bool{
		"data-web-0": true, "logs-web-12": true, "data-web-": false, "data-web-x": false, "data-web-1-2": false, "data-webs-1": false,
		"other-web-0": false, "data-web": false,
	} {
		if got := hasClaim(set, claim); got != want {
			t.Errorf("%s: %v", claim, got)
		}
	}
}

func TestSetOfPodName(t *testing.T) {
	for name, want := range map[string][]control.Key{
		"web-0": {{Namespace: "ns", Name: "web"}}, "a-b-7": {{Namespace: "ns", Name: "a-b"}}, "web": nil,
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		if got := slices.Collect(setOfPodName(nil, pod)); !slices.Equal(got, want) {
			t.Errorf("%s wakes %v", name, got)
		}
	}
}

func TestRelevantClaimChange(t *testing.T) {
	old := &corev1.PersistentVolumeClaim{}
	bound, owned, terminating := old.DeepCopy(), old.DeepCopy(), old.DeepCopy()
	bound.Status.Phase = corev1.ClaimBound
	owned.OwnerReferences = []metav1.OwnerReference{{UID: "u"}}
	terminating.DeletionTimestamp = new(metav1.NewTime(noon))
	if isRelevantClaimChange(nil, old) || isRelevantClaimChange(old, bound) {
		t.Error("an irrelevant change wakes the controller")
	}
	if !isRelevantClaimChange(old, nil) || !isRelevantClaimChange(old, owned) || !isRelevantClaimChange(old, terminating) {
		t.Error("a relevant change does not wake the controller")
	}
}
