package persistentvolume

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// reconcileVolume reconciles a volume: it keeps its phase, and reclaims it when it is no longer used.
func (b *binder) reconcileVolume(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	v, found := control.Get[*corev1.PersistentVolume](c, gr.PersistentVolumes, "", k.Name)
	if !found {
		return 0, nil
	}
	if annotations, finalizers := migratedAnnotations(v.Annotations, provisionedBy), wantFinalizers(v); annotations != nil ||
		v.DeletionTimestamp == nil && !slices.Equal(finalizers, v.Finalizers) {
		next := v.DeepCopy()
		if annotations != nil {
			next.Annotations = annotations
		}
		if v.DeletionTimestamp == nil { // finalizers cannot be added to an object that is being deleted
			next.Finalizers = finalizers
		}
		_, err := c.Update(ctx, gr.PersistentVolumes, next, "")
		return 0, control.IgnoreNotFound(err)
	}
	claim, err := claimOf(ctx, c, v)
	if err != nil {
		return 0, err
	}
	p := decideVolume(v, claim)
	for _, e := range p.toVolume {
		c.Event(v, e.kind, e.reason, "%s", e.text)
	}
	for _, e := range p.toClaim {
		c.Event(claim, e.kind, e.reason, "%s", e.text)
	}
	if p.unbind {
		return 0, control.IgnoreNotFound(unbind(ctx, c, v))
	}
	if p.phase != "" {
		if v, err = writePhase(ctx, c, v, p.phase, ""); err != nil {
			return 0, control.IgnoreNotFound(err)
		}
	}
	if p.reclaim {
		again, err := b.reclaim(ctx, c, v)
		return again, control.IgnoreNotFound(err)
	}
	return 0, deleteRecycler(ctx, c, v)
}

// claimOf returns the claim that the claimRef of a volume names, or nil. It asks the server about a claim that the view does
// not have.
func claimOf(ctx context.Context, c *control.Cluster, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return nil, nil
	}
	claim, found := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, ref.Namespace, ref.Name)
	if found && claim.UID == ref.UID {
		return claim, nil
	}
	if known := v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed; known && !found {
		return nil, nil
	}
	claim, found, err := getStored[*corev1.PersistentVolumeClaim](ctx, c, gr.PersistentVolumeClaims, ref.Namespace, ref.Name)
	if err != nil || !found || claim.UID != ref.UID {
		return nil, err
	}
	return claim, nil
}

// reclaim carries out the reclaim policy of a released volume.
func (b *binder) reclaim(ctx context.Context, c *control.Cluster, v *corev1.PersistentVolume) (time.Duration, error) {
	if v.Annotations[migratedTo] != "" {
		return 0, nil // the provisioner of the CSI driver reclaims it
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
		return 0, nil
	case corev1.PersistentVolumeReclaimDelete:
		how, err := decideDeletion(v)
		switch {
		case err != nil:
			return 0, markFailed(ctx, c, v, "VolumeFailedDelete", err.Error())
		case how == byPath:
			return 0, b.deleteHostPath(ctx, c, v)
		}
		return 0, nil
	case corev1.PersistentVolumeReclaimRecycle:
		if wait := b.recycleDelay(v.Name, time.Now()); wait > 0 {
			return wait, nil
		}
		return 0, b.recycle(ctx, c, v)
	}
	return 0, markFailed(ctx, c, v, "VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")
}

// deleteHostPath removes the folder of a volume, and then the object. Because that cannot be undone, it is decided on what is stored
// and not on what the views show.
func (b *binder) deleteHostPath(ctx context.Context, c *control.Cluster, v *corev1.PersistentVolume) error {
	v, sure, err := checkReclaimable(ctx, c, v)
	if err != nil || !sure {
		return err
	}
	if err := b.Remove(v.Spec.HostPath.Path); err != nil {
		return errors.Join(err, markFailed(ctx, c, v, "VolumeFailedDelete", err.Error())) // it is retried
	}
	if slices.Contains(v.Finalizers, ownFinalizer) && v.DeletionTimestamp != nil {
		next := v.DeepCopy()
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == ownFinalizer })
		_, err := c.Update(ctx, gr.PersistentVolumes, next, "")
		return err
	}
	if v.DeletionTimestamp != nil {
		return nil
	}
	return c.Delete(ctx, gr.PersistentVolumes, "", v.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion}})
}

// checkReclaimable reads a volume and its claim from the server, and reports whether the volume is still to be reclaimed.
func checkReclaimable(ctx context.Context, c *control.Cluster, v *corev1.PersistentVolume) (*corev1.PersistentVolume, bool, error) {
	now, found, err := getStored[*corev1.PersistentVolume](ctx, c, gr.PersistentVolumes, "", v.Name)
	if err != nil || !found || now.UID != v.UID || now.Spec.ClaimRef == nil {
		return nil, false, err
	}
	claim, found, err := getStored[*corev1.PersistentVolumeClaim](ctx, c, gr.PersistentVolumeClaims, now.Spec.ClaimRef.Namespace,
		now.Spec.ClaimRef.Name)
	if err != nil {
		return nil, false, err
	}
	if !found {
		claim = nil
	}
	return now, mayReclaim(now, claim), nil
}

// markFailed sets the phase of a volume that could not be reclaimed to Failed.
func markFailed(ctx context.Context, c *control.Cluster, v *corev1.PersistentVolume, reason, message string) error {
	if v.Status.Phase == corev1.VolumeFailed {
		return nil
	}
	_, err := writePhase(ctx, c, v, corev1.VolumeFailed, message)
	if err == nil {
		c.Event(v, corev1.EventTypeWarning, reason, "%s", message)
	}
	return err
}

// unbind removes the claimRef of a volume, and makes it available.
func unbind(ctx context.Context, c *control.Cluster, v *corev1.PersistentVolume) error {
	o, err := c.Update(ctx, gr.PersistentVolumes, unboundVolume(v), "")
	if err != nil {
		return err
	}
	_, err = writePhase(ctx, c, o.(*corev1.PersistentVolume), corev1.VolumeAvailable, "")
	return err
}

// writePhase writes the phase of a volume if it has changed.
func writePhase(ctx context.Context, c *control.Cluster, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase,
	message string) (*corev1.PersistentVolume, error) {
	if v.Status.Phase == phase {
		return v, nil
	}
	next := v.DeepCopy()
	next.Status.Phase, next.Status.Message = phase, message
	o, err := c.Update(ctx, gr.PersistentVolumes, next, "status")
	if err != nil {
		return nil, err
	}
	return o.(*corev1.PersistentVolume), nil
}

// getStored reads an object from the server.
func getStored[T kind.Object](ctx context.Context, c *control.Cluster, on schema.GroupResource, namespace, name string) (T, bool, error) {
	var none T
	o, err := c.Get(ctx, on, namespace, name, "")
	switch t, ok := o.(T); {
	case apierrors.IsNotFound(err):
		return none, false, nil
	case err != nil:
		return none, false, err
	default:
		return t, ok, nil
	}
}
