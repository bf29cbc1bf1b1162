package csi

import (
	"context"
	"fmt"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node/event"
)

// expand grows the file system to the size of the volume. It reports whether the volume can grow again.
func (j *publication) expand(ctx context.Context) (can bool, err error) {
	if j.v.PV == nil || j.v.Claim == nil || j.v.ReadOnly {
		return false, nil
	}
	if can, err = j.hasCapability(ctx, spec.NodeServiceCapability_RPC_EXPAND_VOLUME); err != nil || !can {
		return false, err
	}
	size, wanted := hasGrown(j.v.PV, j.v.Claim)
	if !wanted {
		return true, nil
	}
	secrets, err := j.secrets(ctx, j.source.expandSecret)
	if err != nil {
		return true, fmt.Errorf("expander.NodeExpand failed to get NodeExpandSecretRef %s/%s: %w", j.source.expandSecret.Namespace,
			j.source.expandSecret.Name, err)
	}
	_, err = j.NodeExpandVolume(ctx, &spec.NodeExpandVolumeRequest{
		VolumeId: j.source.handle, VolumePath: j.target, StagingTargetPath: j.stage, Secrets: secrets,
		CapacityRange: &spec.CapacityRange{RequiredBytes: size.Value()}, VolumeCapability: capability(j.source, j.v.Block, j.multi, nil),
	})
	if err != nil {
		j.Events.Event(event.Pod(j.v.Pod), corev1.EventTypeWarning, "VolumeResizeFailed",
			"NodeExpandVolume.NodeExpandVolume failed for volume %q : Expander.NodeExpand failed to expand the volume : %v", j.v.Name, err)
		if isInfeasible(err) {
			j.updateClaimStatus(ctx, infeasibleClaim(j.v.Claim, err))
		}
		return true, nil // the volume can be used as it is
	}
	j.Events.Event(event.Pod(j.v.Pod), corev1.EventTypeNormal, "FileSystemResizeSuccessful",
		"MountVolume.NodeExpandVolume succeeded for volume %q %s", j.v.Name, j.Node)
	j.updateClaimStatus(ctx, expandedClaim(j.v.Claim, size))
	return true, nil
}

// updateClaimStatus writes the status of a claim. After a conflict it is written the next time.
func (j *publication) updateClaimStatus(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if _, err := j.Client.Update(ctx, gr.PersistentVolumeClaims, claim, "status"); err != nil {
		j.Log.WarnContext(ctx, "the status of a claim cannot be updated after its volume was expanded", "claim", claim.Namespace+"/"+claim.Name, "err", err)
	}
}

// hasGrown returns the size of a volume, and whether it is larger than the status of its claim says.
func hasGrown(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	size, known := pv.Spec.Capacity[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizeInfeasible {
		return size, false
	}
	return size, !known.IsZero() && size.Cmp(known) > 0
}

// expandedClaim returns the claim of a volume that has been expanded.
func expandedClaim(claim *corev1.PersistentVolumeClaim, size resource.Quantity) *corev1.PersistentVolumeClaim {
	c := claim.DeepCopy()
	if c.Status.Capacity == nil {
		c.Status.Capacity = corev1.ResourceList{}
	}
	c.Status.Capacity[corev1.ResourceStorage] = size
	delete(c.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
	if len(c.Status.AllocatedResourceStatuses) == 0 {
		c.Status.AllocatedResourceStatuses = nil
	}
	c.Status.Conditions = slices.DeleteFunc(c.Status.Conditions, resizing)
	return c
}

// infeasibleClaim returns the claim of a volume that its driver cannot expand.
func infeasibleClaim(claim *corev1.PersistentVolumeClaim, why error) *corev1.PersistentVolumeClaim {
	c := claim.DeepCopy()
	if c.Status.AllocatedResourceStatuses == nil {
		c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizeInfeasible
	c.Status.Conditions = append(slices.DeleteFunc(c.Status.Conditions, func(o corev1.PersistentVolumeClaimCondition) bool {
		return o.Type == corev1.PersistentVolumeClaimNodeResizeError
	}), corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue,
		Message: fmt.Sprintf("failed to expand pvc with %v", why),
	})
	return c
}

func resizing(c corev1.PersistentVolumeClaimCondition) bool {
	switch c.Type {
	case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
		return true
	}
	return false
}
