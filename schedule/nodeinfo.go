package schedule

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeInfo is a node with the pods on it counted. It is shared and read-only: what changes is a copy.
type NodeInfo struct {
	Node *corev1.Node
	// Slot is the place of the node in its snapshots. It stays the same while the node exists.
	Slot int
	// Generation differs between any two states of any nodes.
	Generation uint64

	Allocatable Resources
	Requested   Resources // by all pods, those included that are on their way
	// NonZeroCPU and NonZeroMemory are what is requested when pods without requests count for a little.
	NonZeroCPU    int64
	NonZeroMemory int64

	Pods []*PodInfo
	// WithAffinity are the pods that have any affinity or anti-affinity to pods, WithAntiAffinity those that require the
	// latter.
	WithAffinity     []*PodInfo
	WithAntiAffinity []*PodInfo

	Ports []Port
	// Claims say how many pods of the node mount a claim, by namespace/name.
	Claims map[string]int
	// Images are the sizes of the images on the node, by every name they have.
	Images map[string]int64
	// Hard are the taints that keep pods off, Soft those that only put them off.
	Hard, Soft []corev1.Taint
}

// Name is the name of the node.
func (n *NodeInfo) Name() string { return n.Node.Name }

// setNode takes over what the node says of itself.
func (n *NodeInfo) setNode(node *corev1.Node) {
	n.Node = node
	n.Allocatable = NewResources(node.Status.Allocatable)
	n.Hard, n.Soft = nil, nil
	for _, t := range node.Spec.Taints {
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute:
			n.Hard = append(n.Hard, t)
		case corev1.TaintEffectPreferNoSchedule:
			n.Soft = append(n.Soft, t)
		}
	}
	n.Images = make(map[string]int64, len(node.Status.Images))
	for _, image := range node.Status.Images {
		for _, name := range image.Names {
			n.Images[name] = image.SizeBytes
		}
	}
}

// add counts a pod. The slices may grow into room behind those of older copies, which do not see it; owner says that no
// other copy may do the same.
func (n *NodeInfo) add(p *PodInfo, owner bool) {
	grow := func(list []*PodInfo) []*PodInfo {
		if !owner {
			list = slices.Clip(list)
		}
		return append(list, p)
	}
	n.count(p, 1)
	n.Pods = grow(n.Pods)
	if p.affine() {
		n.WithAffinity = grow(n.WithAffinity)
	}
	if len(p.AntiAffinity) > 0 {
		n.WithAntiAffinity = grow(n.WithAntiAffinity)
	}
	if len(p.Ports) > 0 {
		n.Ports = slices.Concat(n.Ports, p.Ports)
	}
}

// remove takes a pod out again, by its UID, and returns it as it was counted.
func (n *NodeInfo) remove(uid types.UID) *PodInfo {
	i := slices.IndexFunc(n.Pods, func(p *PodInfo) bool { return p.Pod.UID == uid })
	if i < 0 {
		return nil
	}
	p := n.Pods[i]
	n.count(p, -1)
	n.Pods = without(n.Pods, p)
	n.WithAffinity = without(n.WithAffinity, p)
	n.WithAntiAffinity = without(n.WithAntiAffinity, p)
	if len(p.Ports) > 0 {
		n.Ports = nil
		for _, q := range n.Pods {
			n.Ports = append(n.Ports, q.Ports...)
		}
	}
	return p
}

func (n *NodeInfo) count(p *PodInfo, by int64) {
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

// without is the list less one, in memory of its own. Order does not matter, so the last takes the place.
func without(list []*PodInfo, p *PodInfo) []*PodInfo {
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

// zone is the region and zone of a node, for taking turns between zones.
func zone(node *corev1.Node) string {
	region, zone := node.Labels[corev1.LabelTopologyRegion], node.Labels[corev1.LabelTopologyZone]
	if region == "" && zone == "" {
		return ""
	}
	return strings.Join([]string{region, zone}, ":\x00:")
}
