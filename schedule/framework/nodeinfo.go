package framework

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeInfo is a node with its Pods and the sums of their requests. It is shared and read-only: changes are made to a
// copy.
type NodeInfo struct {
	Node *corev1.Node
	// Slot identifies the node in snapshots. It stays the same while the node exists.
	Slot int
	// Generation is unique for each state of each node.
	Generation uint64

	Allocatable Resources
	Requested   Resources // by all Pods, including assumed ones
	// NonZeroCPU and NonZeroMemory are the requests with defaults for containers that have none.
	NonZeroCPU    int64
	NonZeroMemory int64

	Pods []*PodInfo
	// WithAffinity are the Pods with any affinity or anti-affinity to Pods, WithAntiAffinity those with required
	// anti-affinity.
	WithAffinity     []*PodInfo
	WithAntiAffinity []*PodInfo

	Ports []Port
	// Claims has the number of Pods on the node that mount a PersistentVolumeClaim, by namespace/name.
	Claims map[string]int
	// Images has the sizes of the images on the node, by each of their names.
	Images map[string]int64
	// HardTaints are the taints with effect NoSchedule or NoExecute, SoftTaints those with PreferNoSchedule.
	HardTaints, SoftTaints []corev1.Taint
}

// Name returns the name of the node.
func (n *NodeInfo) Name() string { return n.Node.Name }

// setNode sets the node object and what is derived from it.
func (n *NodeInfo) setNode(node *corev1.Node) {
	n.Node = node
	n.Allocatable = NewResources(node.Status.Allocatable)
	n.HardTaints, n.SoftTaints = nil, nil
	for _, t := range node.Spec.Taints {
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute:
			n.HardTaints = append(n.HardTaints, t)
		case corev1.TaintEffectPreferNoSchedule:
			n.SoftTaints = append(n.SoftTaints, t)
		}
	}
	n.Images = make(map[string]int64, len(node.Status.Images))
	for _, image := range node.Status.Images {
		for _, name := range image.Names {
			n.Images[name] = image.SizeBytes
		}
	}
}

// add adds a Pod. With owner, slices may be appended to in place: older copies of the NodeInfo share the array but do
// not see the new element. Only one copy may do that; all others must pass false.
func (n *NodeInfo) add(p *PodInfo, owner bool) {
	grow := func(list []*PodInfo) []*PodInfo {
		if !owner {
			list = slices.Clip(list)
		}
		return append(list, p)
	}
	n.countPod(p, 1)
	n.Pods = grow(n.Pods)
	if p.HasPodAffinity() {
		n.WithAffinity = grow(n.WithAffinity)
	}
	if len(p.AntiAffinity) > 0 {
		n.WithAntiAffinity = grow(n.WithAntiAffinity)
	}
	if len(p.Ports) > 0 {
		n.Ports = slices.Concat(n.Ports, p.Ports)
	}
}

// remove removes a Pod by its UID, and returns it as it was added.
func (n *NodeInfo) remove(uid types.UID) *PodInfo {
	i := slices.IndexFunc(n.Pods, func(p *PodInfo) bool { return p.Pod.UID == uid })
	if i < 0 {
		return nil
	}
	p := n.Pods[i]
	n.countPod(p, -1)
	n.Pods = withoutPod(n.Pods, p)
	n.WithAffinity = withoutPod(n.WithAffinity, p)
	n.WithAntiAffinity = withoutPod(n.WithAntiAffinity, p)
	if len(p.Ports) > 0 {
		n.Ports = nil
		for _, q := range n.Pods {
			n.Ports = append(n.Ports, q.Ports...)
		}
	}
	return p
}

func (n *NodeInfo) countPod(p *PodInfo, by int64) {
	n.Requested.add(&p.Requests, by)
	n.NonZeroCPU += by * p.NonZeroCPU
	n.NonZeroMemory += by * p.NonZeroMemory
	if len(p.Claims) == 0 {
		return
	}
	sum := make(map[string]int, len(n.Claims)+len(p.Claims))
	maps.Copy(sum, n.Claims)
	for _, c := range p.Claims {
		if sum[c] += int(by); sum[c] <= 0 {
			delete(sum, c)
		}
	}
	n.Claims = sum
}

// withoutPod returns a copy of the list without one Pod. The order may change.
func withoutPod(list []*PodInfo, p *PodInfo) []*PodInfo {
	i := slices.Index(list, p)
	if i < 0 {
		return list
	}
	out := make([]*PodInfo, len(list)-1, len(list)+4)
	copy(out, list[:len(list)-1])
	if i < len(out) {
		out[i] = list[len(list)-1]
	}
	return out
}

// zoneKey returns a key for the region and zone of a node.
func zoneKey(node *corev1.Node) string {
	region, zone := node.Labels[corev1.LabelTopologyRegion], node.Labels[corev1.LabelTopologyZone]
	if region == "" && zone == "" {
		return ""
	}
	return strings.Join([]string{region, zone}, ":\x00:")
}
