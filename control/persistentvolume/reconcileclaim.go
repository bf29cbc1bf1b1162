package persistentvolume

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

// reconcileClaim reconciles a claim.
func (b *binder) reconcileClaim(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	claim, found := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, k.Namespace, k.Name)
	if !found {
		b.events.forget(k)
		return 0, nil
	}
	if annotations := migratedAnnotations(claim.Annotations, provisioner, provisionerBeta); annotations != nil {
		next := claim.DeepCopy()
		next.Annotations = annotations
		_, err := c.Update(ctx, gr.PersistentVolumeClaims, next, "")
		return 0, err
	}
	s, done, err := b.claimContext(ctx, c, claim)
	if err != nil {
		return 0, err
	}
	defer done()
	p := decideClaim(claim, s)
	again := b.events.filter(k, claim.UID, &p, time.Now())
	return again, applyClaim(ctx, c, claim, p)
}

// claimContext collects the objects that a decision about a claim depends on. done releases the volume that is reserved for it.
func (b *binder) claimContext(ctx context.Context, c *control.Cluster, claim *corev1.PersistentVolumeClaim) (s claimContext, done func(),
	err error) {
	done = func() {}
	if name := claim.Spec.VolumeName; name != "" {
		v, found := control.Get[*corev1.PersistentVolume](c, gr.PersistentVolumes, "", name)
		if !found && claim.Status.Phase != corev1.ClaimLost { // ask the server before the claim is marked as lost
			v, found, err = getStored[*corev1.PersistentVolume](ctx, c, gr.PersistentVolumes, "", name)
		}
		if found {
			s.named = v
		}
		return s, done, err
	}
	if metav1.HasAnnotation(claim.ObjectMeta, bindCompleted) {
		return s, done, nil
	}
	if name := claimClass(claim); name != "" {
		class, found := control.Get[*storagev1.StorageClass](c, gr.StorageClasses, "", name)
		if !found { // the view may not show a new class yet, with which the claim must wait
			if class, found, err = getStored[*storagev1.StorageClass](ctx, c, gr.StorageClasses, "", name); err != nil {
				return s, done, err
			}
		}
		if found {
			s.class = class
		}
	}
	if !asksForClass(claim) {
		s.defaultClass = defaultClassOf(slices.Collect(control.List[*storagev1.StorageClass](c, gr.StorageClasses, "")))
	}
	for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByClaim(), claim.Namespace+"/"+claim.Name) {
		if p.Spec.NodeName == "" && !workload.IsTerminal(p) {
			s.waiting = append(s.waiting, p.Name)
		}
	}
	s.match, done, err = b.reserveVolume(c, claim, waitsForConsumer(s.class))
	return s, done, err
}

// reserveVolume finds a volume for a claim, and reserves it so that no other worker chooses it meanwhile. The reservation only avoids
// conflicts, which the resourceVersion of the volume would cause.
func (b *binder) reserveVolume(c *control.Cluster, claim *corev1.PersistentVolumeClaim, delayed bool) (*corev1.PersistentVolume, func(),
	error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var candidates []*corev1.PersistentVolume
	for v := range control.By[*corev1.PersistentVolume](c, gr.PersistentVolumes, byClaimRef(), claim.Namespace+"/"+claim.Name) {
		candidates = append(candidates, v)
	}
	if !delayed {
		for v := range control.By[*corev1.PersistentVolume](c, gr.PersistentVolumes, freeByClass(), claimClass(claim)) {
			if !b.reserved[v.Name] {
				candidates = append(candidates, v)
			}
		}
	}
	v, err := bestVolume(claim, candidates, delayed)
	if v == nil || err != nil || v.Spec.ClaimRef != nil {
		return v, func() {}, err
	}
	b.reserved[v.Name] = true
	return v, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.reserved, v.Name)
	}, nil
}

// applyClaim makes the writes of a plan, and records the Events.
func applyClaim(ctx context.Context, c *control.Cluster, claim *corev1.PersistentVolumeClaim, p claimPlan) error {
	tell := func(list []event) {
		for _, e := range list {
			c.Event(claim, e.kind, e.reason, "%s", e.text)
		}
	}
	var err error
	switch {
	case p.bind != nil:
		err = bind(ctx, c, claim, p.bind)
	case p.class != "":
		next := claim.DeepCopy()
		next.Spec.StorageClassName = new(p.class)
		_, err = c.Update(ctx, gr.PersistentVolumeClaims, next, "")
	case p.provisioner != "":
		if err = setProvisioner(ctx, c, claim, p.provisioner); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			c.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", "Error saving claim: %v", err)
		}
	case p.phase != "":
		changes := claim.Status.Phase != p.phase
		if err = writeStatus(ctx, c, claim, unboundStatus(claim, p.phase)); err == nil && changes {
			tell(p.eventsOnPhaseChange)
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	tell(p.events)
	return p.err
}

// bind makes a volume and a claim refer to each other. The volume is written first, because two claims could want it. Each
// write is skipped if it was done before, so that a reconcile after a crash does the rest.
func bind(ctx context.Context, c *control.Cluster, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	if next, changed := boundVolume(v, claim); changed {
		// A volume of a deleted claim would be reclaimed, so the server is asked whether the claim still exists.
		now, found, err := getStored[*corev1.PersistentVolumeClaim](ctx, c, gr.PersistentVolumeClaims, claim.Namespace, claim.Name)
		if err != nil || !found || now.UID != claim.UID {
			return err
		}
		o, err := c.Update(ctx, gr.PersistentVolumes, next, "")
		if err != nil {
			return err
		}
		v = o.(*corev1.PersistentVolume)
	}
	v, err := writePhase(ctx, c, v, corev1.VolumeBound, "")
	if err != nil {
		return err
	}
	if next, changed := boundClaim(claim, v); changed {
		o, err := c.Update(ctx, gr.PersistentVolumeClaims, next, "")
		if err != nil {
			return err
		}
		claim = o.(*corev1.PersistentVolumeClaim)
	}
	status, err := boundStatus(claim, v)
	if err != nil {
		return err
	}
	return writeStatus(ctx, c, claim, status)
}

// setProvisioner sets the annotations with the provisioner that shall create a volume.
func setProvisioner(ctx context.Context, c *control.Cluster, claim *corev1.PersistentVolumeClaim, name string) error {
	if claim.Annotations[provisioner] == name {
		return nil
	}
	next := claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, provisionerBeta, name)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, provisioner, name)
	if annotations := migratedAnnotations(next.Annotations, provisioner, provisionerBeta); annotations != nil {
		next.Annotations = annotations
	}
	_, err := c.Update(ctx, gr.PersistentVolumeClaims, next, "")
	return err
}

func writeStatus(ctx context.Context, c *control.Cluster, claim *corev1.PersistentVolumeClaim,
	status corev1.PersistentVolumeClaimStatus) error {
	if sameStatus(claim.Status, status) {
		return nil
	}
	next := claim.DeepCopy()
	next.Status = status
	if _, err := c.Update(ctx, gr.PersistentVolumeClaims, next, "status"); err != nil {
		return fmt.Errorf("set the status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
