package protection

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
)

// note keeps the condition that says since when no pod has named a bound claim.
func note(ctx context.Context, c *control.Cluster, k control.Key) error {
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
		named = named || names(p, claim)
	}
	next := claim.DeepCopy()
	if !unused(&next.Status, named, time.Now()) {
		return nil
	}
	_, err := c.Update(ctx, core("persistentvolumeclaims"), next, "status")
	return control.Gone(err)
}

// names says that a pod that has not ended names a claim, wherever it is. An ephemeral claim must be the pod's own.
func names(p *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
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

// unused sets the condition, and says whether that changes anything.
func unused(st *corev1.PersistentVolumeClaimStatus, named bool, now time.Time) bool {
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
