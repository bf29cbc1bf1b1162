package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// NewRestrictions returns the plugin VolumeRestrictions, which rejects nodes where another Pod uses the same disk, and
// all nodes while another Pod uses a ReadWriteOncePod claim.
func NewRestrictions() framework.Plugin {
	r := &restrictions{
		diskConflict: framework.Unschedulable("node(s) had no available disk"),
		claimInUse:   framework.Unschedulable("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"),
	}
	return framework.Plugin{
		Name:  "VolumeRestrictions",
		Reads: []schema.GroupResource{gr.PersistentVolumeClaims},
		QueueingHints: []framework.QueueingHint{
			{On: framework.AssignedPod, Do: framework.Delete, If: func(pod *corev1.Pod, was, _ kind.Object) bool {
				gone, ok := was.(*corev1.Pod)
				return !ok || gone.Namespace == pod.Namespace && (sharesDisk(pod, gone) || sharesClaim(pod, gone))
			}},
			{On: framework.NodeResource, Do: framework.Add},
			{On: framework.VolumeClaim, Do: framework.Add, If: isOwnClaim},
		},
		Prepare: r.prepare,
	}
}

type restrictions struct{ diskConflict, claimInUse *framework.Rejection }

func (r *restrictions) prepare(s *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
	if len(p.Pod.Spec.Volumes) == 0 {
		return framework.Skip()
	}
	// The ReadWriteOncePod claims, and the number of Pods that use them.
	exclusive, users := sets.New[string](), 0
	for _, v := range p.Pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := getClaim(s.Cluster, p.Pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return framework.Prepared{Reject: framework.Unresolvable(err.Error())}
		}
		if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			exclusive.Insert(p.Pod.Namespace + "/" + claim.Name)
		}
	}
	if len(exclusive) > 0 {
		for n := range s.All() {
			for claim := range exclusive {
				users += n.Claims[claim]
			}
		}
	}
	disks := slices.ContainsFunc(p.Pod.Spec.Volumes, isDisk)
	if !disks && users == 0 && len(exclusive) == 0 {
		if len(p.Claims) == 0 {
			return framework.Skip()
		}
		return framework.Prepared{Update: func(*framework.NodeInfo, *framework.PodInfo, int) bool { return true }}
	}
	return framework.Prepared{
		Update: func(_ *framework.NodeInfo, q *framework.PodInfo, by int) bool {
			for _, claim := range q.Claims {
				if exclusive.Has(claim) {
					users += by
				}
			}
			return true
		},
		Filter: func(n *framework.NodeInfo) *framework.Rejection {
			if disks && slices.ContainsFunc(n.Pods, func(q *framework.PodInfo) bool { return sharesDisk(p.Pod, q.Pod) }) {
				return r.diskConflict
			}
			if users > 0 {
				return r.claimInUse
			}
			return nil
		},
	}
}

// isDisk reports whether a volume is a disk that can be attached only once, unless all Pods mount it read-only.
func isDisk(v corev1.Volume) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.RBD != nil || v.ISCSI != nil
}

// sharesDisk reports whether two Pods use the same disk and cannot share it.
func sharesDisk(a, b *corev1.Pod) bool {
	for i := range a.Spec.Volumes {
		if !isDisk(a.Spec.Volumes[i]) {
			continue
		}
		for j := range b.Spec.Volumes {
			if sameDisk(&a.Spec.Volumes[i], &b.Spec.Volumes[j]) {
				return true
			}
		}
	}
	return false
}

func sameDisk(a, b *corev1.Volume) bool {
	switch {
	case a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil:
		x, y := a.GCEPersistentDisk, b.GCEPersistentDisk
		return x.PDName == y.PDName && !(x.ReadOnly && y.ReadOnly)
	case a.AWSElasticBlockStore != nil && b.AWSElasticBlockStore != nil:
		return a.AWSElasticBlockStore.VolumeID == b.AWSElasticBlockStore.VolumeID
	case a.ISCSI != nil && b.ISCSI != nil:
		return a.ISCSI.IQN == b.ISCSI.IQN && !(a.ISCSI.ReadOnly && b.ISCSI.ReadOnly)
	case a.RBD != nil && b.RBD != nil:
		x, y := a.RBD, b.RBD
		return x.RBDPool == y.RBDPool && x.RBDImage == y.RBDImage && !(x.ReadOnly && y.ReadOnly) &&
			slices.ContainsFunc(x.CephMonitors, func(m string) bool { return slices.Contains(y.CephMonitors, m) })
	}
	return false
}

// sharesClaim reports whether two Pods of a namespace mount the same claim.
func sharesClaim(a, b *corev1.Pod) bool {
	mounted := framework.ClaimNames(b)
	return slices.ContainsFunc(framework.ClaimNames(a), func(c string) bool { return slices.Contains(mounted, c) })
}
