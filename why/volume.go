package why

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/metadata"
)

// volume explains a PersistentVolume.
func (r *reader) volume(ctx context.Context, t Target) (*Answer, error) {
	v, err := lookup.Load[corev1.PersistentVolume](ctx, r.Reader, gr.PersistentVolumes, "", t.Name)
	if err != nil {
		return nil, err
	}
	a := (&Answer{Object: t.ref(), State: Stuck}).At(hop.Control)
	claim := ""
	if c := v.Spec.ClaimRef; c != nil {
		claim = c.Namespace + "/" + c.Name
	}
	if v.DeletionTimestamp != nil {
		if v.Status.Phase == corev1.VolumeBound && slices.Contains(v.Finalizers, "kubernetes.io/pv-protection") {
			a.State, a.Cause = Waiting, "The volume is deleted once the claim "+claim+", which is bound to it, is deleted."
			return a.Because(a.Object, "spec.claimRef", claim, time.Time{}), nil
		}
		return metadata.Ending(a, &v.ObjectMeta, r.Now), nil
	}
	a.Because(a.Object, "status.phase", string(v.Status.Phase), time.Time{})
	failure := lookup.Latest(r.Events(ctx, "default", v.UID), "VolumeFailedDelete", "VolumeFailedRecycle")
	switch {
	case v.Status.Phase == corev1.VolumeFailed:
		a.Cause = "The volume cannot be reclaimed after the claim " + claim + " was deleted: " + answer.Sentence(v.Status.Message) + "."
		return a.Do("mend what the message names, or save what is on the volume and delete it by hand"), nil
	case v.Status.Phase == corev1.VolumeReleased && failure != nil:
		a.Cause = "The volume cannot be deleted after its claim " + claim + ": " + answer.Sentence(failure.Message) + "."
		return a.Because(a.Object, "event "+failure.Reason, failure.Message, failure.Time), nil
	case v.Status.Phase == corev1.VolumeReleased:
		policy := v.Spec.PersistentVolumeReclaimPolicy
		a.State, a.Cause = Waiting, "The claim "+claim+" of the volume is deleted, and so is the volume soon."
		if policy == corev1.PersistentVolumeReclaimRetain {
			a.Cause = "The claim " + claim + " of the volume is deleted; the volume is kept until somebody deletes it."
		}
		return a.Because(a.Object, "spec.persistentVolumeReclaimPolicy", string(policy), time.Time{}), nil
	case v.Status.Phase == corev1.VolumeBound:
		a.State, a.Cause, a.Hop, a.HopName = Working, "The volume is bound to the claim "+claim+".", 0, ""
	case v.Status.Phase == corev1.VolumeAvailable:
		a.State, a.Cause, a.Hop, a.HopName = Working, "The volume is free for a claim.", 0, ""
	default:
		a.State, a.Cause = Waiting, "The volume is not available yet."
	}
	return a, nil
}
