package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// VolumeRestrictions keeps pods apart that cannot share a disk on a node, or a claim anywhere.
func VolumeRestrictions() Plugin {
	r := &restrictions{
		disk:  No("node(s) had no available disk"),
		claim: No("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"),
	}
	return Plugin{
		Name:  "VolumeRestrictions",
		Reads: []schema.GroupResource{gr.PersistentVolumeClaims},
		Wakes: []Wake{
			{On: AssignedPod, Do: Delete, If: func(pod *corev1.Pod, was, _ kind.Object) bool {
				gone, ok := was.(*corev1.Pod)
				return !ok || gone.Namespace == pod.Namespace && (sharesDisk(pod, gone) || sharesClaim(pod, gone))
			}},
			{On: NodeResource, Do: Add},
			{On: VolumeClaim, Do: Add, If: wantsClaim},
		},
		Prepare: r.prepare,
	}
}

type restrictions struct{ disk, claim *Verdict }

func (r *restrictions) prepare(s *Snapshot, p *PodInfo) Prepared {
	if len(p.Pod.Spec.Volumes) == 0 {
		return Silent()
	}
	// Claims that only one pod at a time may use, and how many pods use them.
	exclusive, users := sets.New[string](), 0
	for _, v := range p.Pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := getClaim(s.Cluster, p.Pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return Prepared{Reject: NotEver(err.Error())}
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
			return Silent()
		}
		return Prepared{Update: func(*NodeInfo, *PodInfo, int) bool { return true }}
	}
	return Prepared{
		Update: func(_ *NodeInfo, q *PodInfo, by int) bool {
			for _, claim := range q.Claims {
				if exclusive.Has(claim) {
					users += by
				}
			}
			return true
		},
		Filter: func(n *NodeInfo) *Verdict {
			if disks && slices.ContainsFunc(n.Pods, func(q *PodInfo) bool { return sharesDisk(p.Pod, q.Pod) }) {
				return r.disk
			}
			if users > 0 {
				return r.claim
			}
			return nil
		},
	}
}

// isDisk says that a volume is one that can be attached only once, unless all only read.
func isDisk(v corev1.Volume) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.RBD != nil || v.ISCSI != nil
}

// sharesDisk says that two pods name the same disk and cannot both have it.
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

// sharesClaim says that two pods of a namespace mount the same claim.
func sharesClaim(a, b *corev1.Pod) bool {
	mounted := claims(b)
	return slices.ContainsFunc(claims(a), func(c string) bool { return slices.Contains(mounted, c) })
}
