package schedule

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// SchedulingGates keeps pods out of the queue that have gates.
func SchedulingGates() Plugin {
	return Plugin{
		Name:  "SchedulingGates",
		Wakes: []Wake{{On: TargetPod, Do: PodGatesGone}},
		Gate: func(pod *corev1.Pod) *Verdict {
			if len(pod.Spec.SchedulingGates) == 0 {
				return nil
			}
			names := make([]string, len(pod.Spec.SchedulingGates))
			for i, g := range pod.Spec.SchedulingGates {
				names[i] = g.Name
			}
			return NotEver(fmt.Sprintf("waiting for scheduling gates: %v", names))
		},
	}
}

// PrioritySort stands for the order of the queue, which is built in: priority, then time. It is here because configurations
// name it.
func PrioritySort() Plugin { return Plugin{Name: "PrioritySort"} }

// DefaultBinder stands for the binding, which is built in. It is here because configurations name it.
func DefaultBinder() Plugin { return Plugin{Name: "DefaultBinder"} }

// NodeName lets a pod that names a node onto no other.
func NodeName() Plugin {
	other := NotEver("node(s) didn't match the requested node name")
	return Plugin{
		Name:  "NodeName",
		Wakes: []Wake{{On: NodeResource, Do: Add}},
		Prepare: func(_ *Snapshot, p *PodInfo) Prepared {
			name := p.Pod.Spec.NodeName
			if name == "" {
				return Silent()
			}
			return Prepared{Reuse: WhileNode, Filter: func(n *NodeInfo) *Verdict {
				if n.Node.Name != name {
					return other
				}
				return nil
			}}
		},
	}
}

// NodeUnschedulable keeps pods off nodes that are cordoned, unless they tolerate the taint of the same meaning.
func NodeUnschedulable() Plugin {
	cordoned := NotEver("node(s) were unschedulable")
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return Plugin{
		Name: "NodeUnschedulable",
		Wakes: []Wake{
			{On: NodeResource, Do: Add | NodeTaint, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return !is.(*corev1.Node).Spec.Unschedulable && (was == nil || was.(*corev1.Node).Spec.Unschedulable)
			}},
			{On: TargetPod, Do: PodToleration, If: func(_ *corev1.Pod, _, is kind.Object) bool {
				return tolerated(is.(*corev1.Pod).Spec.Tolerations, &taint)
			}},
		},
		Prepare: func(_ *Snapshot, p *PodInfo) Prepared {
			if tolerated(p.Pod.Spec.Tolerations, &taint) {
				return Silent()
			}
			return Prepared{Reuse: WhileNode, Filter: func(n *NodeInfo) *Verdict {
				if n.Node.Spec.Unschedulable {
					return cordoned
				}
				return nil
			}}
		},
	}
}

// NodePorts keeps pods off nodes on which their host ports are taken.
func NodePorts() Plugin {
	taken := No("node(s) didn't have free ports for the requested pod ports")
	clash := func(a, b []Port) bool {
		for _, p := range a {
			for _, q := range b {
				if p.conflicts(q) {
					return true
				}
			}
		}
		return false
	}
	return Plugin{
		Name: "NodePorts",
		Wakes: []Wake{
			{On: AssignedPod, Do: Delete, If: func(pod *corev1.Pod, was, _ kind.Object) bool {
				gone, ok := was.(*corev1.Pod)
				return !ok || hadNode(was) && clash(hostPorts(pod), hostPorts(gone))
			}},
			{On: NodeResource, Do: Add},
		},
		Prepare: func(_ *Snapshot, p *PodInfo) Prepared {
			if len(p.Ports) == 0 {
				return Silent()
			}
			return Prepared{Reuse: WhileNode, Filter: func(n *NodeInfo) *Verdict {
				if clash(p.Ports, n.Ports) {
					return taken
				}
				return nil
			}}
		},
	}
}

// Images between these sizes, for each container, make a difference.
const (
	smallImages = 23 << 20
	largeImages = 1000 << 20 // for each image
)

// ImageLocality prefers nodes that have the images of the pod already. An image counts less while few nodes have it, so that
// not all pods go to them.
func ImageLocality() Plugin {
	return Plugin{Name: "ImageLocality", Images: true, Prepare: func(s *Snapshot, p *PodInfo) Prepared {
		type image struct {
			name  string
			share float64
		}
		var images []image
		add := func(name string) {
			name = tagged(name)
			images = append(images, image{name, float64(s.ImageNodes(name)) / float64(s.Len())})
		}
		for i := range p.Pod.Spec.InitContainers {
			add(p.Pod.Spec.InitContainers[i].Image)
		}
		for i := range p.Pod.Spec.Containers {
			add(p.Pod.Spec.Containers[i].Image)
		}
		for i := range p.Pod.Spec.Volumes {
			if v := p.Pod.Spec.Volumes[i].Image; v != nil {
				add(v.Reference)
			}
		}
		most := largeImages * int64(len(images))
		return Prepared{Reuse: WhileNode, Score: func(n *NodeInfo) int64 {
			var sum int64
			for i := range images {
				if size, has := n.Images[images[i].name]; has {
					sum += int64(float64(size) * images[i].share)
				}
			}
			sum = min(max(sum, smallImages), most)
			return MaxScore * (sum - smallImages) / (most - smallImages)
		}}
	}}
}

// tagged is the name of an image with its tag, as nodes report it.
func tagged(name string) string {
	if strings.LastIndexByte(name, ':') <= strings.LastIndexByte(name, '/') {
		return name + ":latest"
	}
	return name
}
