package volumeprotection

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
)

// updateUnusedCondition writes the condition Unused of a bound claim, with the time since which no pod refers to it.
func updateUnusedCondition(ctx context.Context, c *control.Cluster, k control.Key) error {
	o, found := c.View(core("persistentvolumeclaims")).Get(k.Namespace, k.Name)
	if !found {
		return nil
	}
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	named := false
	for p := range control.By[*corev1.Pod](c, core("pods"), client.ByClaim(), k.Namespace+"/"+k.Name) {
		named = named || mounts(p, claim)
	}
	next := claim.DeepCopy()
	if !setUnused(&next.Status, named, time.Now()) {
		return nil
	}
	_, err := c.Update(ctx, core("persistentvolumeclaims"), next, "status")
	return control.IgnoreNotFound(err)
}

// mounts reports whether a pod that is not terminal refers to a claim. A claim of an ephemeral volume must be owned by the pod.
func mounts(p *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name ||
			v.Ephemeral != nil && p.Name+"-"+v.Name == claim.Name && metav1.IsControlledBy(claim, p) {
			return true
		}
	}
	return false
}

// setUnused sets the condition Unused, and reports whether its status has changed.
func setUnused(st *corev1.PersistentVolumeClaimStatus, named bool, now time.Time) bool {
	want := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if named {
		want.Status, want.Reason, want.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	for i := range st.Conditions {
		if have := &st.Conditions[i]; have.Type == want.Type {
			changed := have.Status != want.Status
			if changed {
				*have = want
			}
			return changed
		}
	}
	st.Conditions = append(st.Conditions, want)
	return true
}
