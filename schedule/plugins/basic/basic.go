// Package basic has the small plugins that look at one Pod and one node at a time: SchedulingGates, NodeName,
// NodeUnschedulable, TaintToleration, NodePorts, ImageLocality and NodeDeclaredFeatures. They are good examples of how
// a plugin is written.
package basic

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
	"proa.dev/schedule/framework"
)

// SchedulingGates keeps Pods with scheduling gates out of the queue.
func SchedulingGates() framework.Plugin {
	return framework.Plugin{
		Name:          "SchedulingGates",
		QueueingHints: []framework.QueueingHint{{On: framework.TargetPod, Do: framework.PodGatesGone}},
		PreEnqueue: func(pod *corev1.Pod) *framework.Rejection {
			if len(pod.Spec.SchedulingGates) == 0 {
				return nil
			}
			names := make([]string, len(pod.Spec.SchedulingGates))
			for i, g := range pod.Spec.SchedulingGates {
				names[i] = g.Name
			}
			return framework.Unresolvable(fmt.Sprintf("waiting for scheduling gates: %v", names))
		},
	}
}

// PrioritySort does nothing: the order of the queue, by priority and time, is built in. It exists because
// configurations name it.
func PrioritySort() framework.Plugin { return framework.Plugin{Name: "PrioritySort"} }

// DefaultBinder does nothing: binding is built in. It exists because configurations name it.
func DefaultBinder() framework.Plugin { return framework.Plugin{Name: "DefaultBinder"} }

// NodeName rejects all nodes but the one that a Pod names.
func NodeName() framework.Plugin {
	otherNode := framework.Unresolvable("node(s) didn't match the requested node name")
	return framework.Plugin{
		Name:          "NodeName",
		QueueingHints: []framework.QueueingHint{{On: framework.NodeResource, Do: framework.Add}},
		Prepare: func(_ *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
			name := p.Pod.Spec.NodeName
			if name == "" {
				return framework.Skip()
			}
			return framework.Prepared{Reuse: framework.ReuseWhileNodeUnchanged, Filter: func(n *framework.NodeInfo) *framework.Rejection {
				if n.Node.Name != name {
					return otherNode
				}
				return nil
			}}
		},
	}
}

// NodeUnschedulable rejects cordoned nodes for Pods that do not tolerate the taint node.kubernetes.io/unschedulable.
func NodeUnschedulable() framework.Plugin {
	cordoned := framework.Unresolvable("node(s) were unschedulable")
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return framework.Plugin{
		Name: "NodeUnschedulable",
		QueueingHints: []framework.QueueingHint{
			{On: framework.NodeResource, Do: framework.Add | framework.NodeTaint, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return !is.(*corev1.Node).Spec.Unschedulable && (was == nil || was.(*corev1.Node).Spec.Unschedulable)
			}},
			{On: framework.TargetPod, Do: framework.PodToleration, If: func(_ *corev1.Pod, _, is kind.Object) bool {
				return framework.Tolerates(is.(*corev1.Pod).Spec.Tolerations, &taint)
			}},
		},
		Prepare: func(_ *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
			if framework.Tolerates(p.Pod.Spec.Tolerations, &taint) {
				return framework.Skip()
			}
			return framework.Prepared{Reuse: framework.ReuseWhileNodeUnchanged, Filter: func(n *framework.NodeInfo) *framework.Rejection {
				if n.Node.Spec.Unschedulable {
					return cordoned
				}
				return nil
			}}
		},
	}
}

// NodePorts rejects nodes on which a host port of the Pod is in use.
func NodePorts() framework.Plugin {
	taken := framework.Unschedulable("node(s) didn't have free ports for the requested pod ports")
	conflict := func(a, b []framework.Port) bool {
		for _, p := range a {
			for _, q := range b {
				if p.ConflictsWith(q) {
					return true
				}
			}
		}
		return false
	}
	return framework.Plugin{
		Name: "NodePorts",
		QueueingHints: []framework.QueueingHint{
			{On: framework.AssignedPod, Do: framework.Delete, If: func(pod *corev1.Pod, was, _ kind.Object) bool {
				gone, ok := was.(*corev1.Pod)
				return !ok || framework.HadNode(was) && conflict(framework.HostPorts(pod), framework.HostPorts(gone))
			}},
			{On: framework.NodeResource, Do: framework.Add},
		},
		Prepare: func(_ *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
			if len(p.Ports) == 0 {
				return framework.Skip()
			}
			return framework.Prepared{Reuse: framework.ReuseWhileNodeUnchanged, Filter: func(n *framework.NodeInfo) *framework.Rejection {
				if conflict(p.Ports, n.Ports) {
					return taken
				}
				return nil
			}}
		},
	}
}

// minImageSize and maxImageSize are the sizes between which the size of images affects the score.
const (
	minImageSize = 23 << 20
	maxImageSize = 1000 << 20 // for each image
)

// ImageLocality prefers nodes that already have the images of the Pod. An image that only few nodes have counts less,
// so that not all Pods are scheduled on these nodes.
func ImageLocality() framework.Plugin {
	return framework.Plugin{Name: "ImageLocality", UsesImageStates: true,
		Prepare: func(s *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
			type image struct {
				name  string
				share float64
			}
			var images []image
			add := func(name string) {
				name = withTag(name)
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
			most := maxImageSize * int64(len(images))
			return framework.Prepared{Reuse: framework.ReuseWhileNodeUnchanged, Score: func(n *framework.NodeInfo) int64 {
				var sum int64
				for i := range images {
					if size, has := n.Images[images[i].name]; has {
						sum += int64(float64(size) * images[i].share)
					}
				}
				sum = min(max(sum, minImageSize), most)
				return framework.MaxScore * (sum - minImageSize) / (most - minImageSize)
			}}
		}}
}

// withTag returns the name of an image with its tag, as nodes report it.
func withTag(name string) string {
	if strings.LastIndexByte(name, ':') <= strings.LastIndexByte(name, '/') {
		return name + ":latest"
	}
	return name
}
