package schedule

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

// PodInfo is a pod with what scheduling wants to know of it worked out. It is shared and read-only.
type PodInfo struct {
	Pod *corev1.Pod
	// Requests are what the pod counts for on a node. CPU and Memory below are the same for even spreading, where a
	// container that asks for nothing counts for a little.
	Requests      Resources
	NonZeroCPU    int64
	NonZeroMemory int64
	// Ports are those it takes on the node.
	Ports []Port
	// Claims are the claims it mounts, as namespace/name.
	Claims []string

	Affinity           []Term // required, towards other pods
	AntiAffinity       []Term
	PreferAffinity     []WeightedTerm
	PreferAntiAffinity []WeightedTerm
}

// Port is taken on a node for one address, or for all if that is 0.0.0.0.
type Port struct {
	IP       string
	Protocol corev1.Protocol
	Port     int32
}

const everyIP = "0.0.0.0"

// conflicts says that two pods on one node cannot both have these.
func (p Port) conflicts(q Port) bool {
	return p.Port == q.Port && p.Protocol == q.Protocol && (p.IP == q.IP || p.IP == everyIP || q.IP == everyIP)
}

// Term is a pod affinity term, parsed.
type Term struct {
	Namespaces        sets.Set[string]
	NamespaceSelector labels.Selector
	Selector          labels.Selector
	TopologyKey       string
}

// WeightedTerm is a preferred one.
type WeightedTerm struct {
	Term
	Weight int32
}

// Matches says whether the term is about a pod. spaces are the labels of its namespace.
func (t *Term) Matches(pod *corev1.Pod, spaces labels.Set) bool {
	if !t.Namespaces.Has(pod.Namespace) && !t.NamespaceSelector.Matches(spaces) {
		return false
	}
	return t.Selector.Matches(labels.Set(pod.Labels))
}

// NewPodInfo works a pod out.
func NewPodInfo(pod *corev1.Pod) *PodInfo {
	p := &PodInfo{Pod: pod, Ports: hostPorts(pod), Claims: claims(pod)}
	p.Requests, p.NonZeroCPU, p.NonZeroMemory = requests(pod)
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			p.Affinity = terms(pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.PreferAffinity = weighted(pod, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			p.AntiAffinity = terms(pod, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.PreferAntiAffinity = weighted(pod, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	return p
}

// renewed is a newer state of a pod that is on a node, where little of it can change.
func (p *PodInfo) renewed(pod *corev1.Pod) *PodInfo {
	if !sameDemand(p.Pod, pod) {
		return NewPodInfo(pod)
	}
	out := *p
	out.Pod = pod
	return &out
}

// affine says that the pod has anything to say about other pods.
func (p *PodInfo) affine() bool {
	return len(p.Affinity)+len(p.AntiAffinity)+len(p.PreferAffinity)+len(p.PreferAntiAffinity) > 0
}

// Priority is the pod's priority.
func (p *PodInfo) Priority() int32 { return priority(p.Pod) }

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// terms parses what can be parsed; the API has checked them, and what it let through in older times selects nothing.
func terms(pod *corev1.Pod, in []corev1.PodAffinityTerm) []Term {
	var out []Term
	for i := range in {
		if t, err := term(pod, &in[i]); err == nil {
			out = append(out, t)
		}
	}
	return out
}

func weighted(pod *corev1.Pod, in []corev1.WeightedPodAffinityTerm) []WeightedTerm {
	var out []WeightedTerm
	for i := range in {
		if t, err := term(pod, &in[i].PodAffinityTerm); err == nil {
			out = append(out, WeightedTerm{Term: t, Weight: in[i].Weight})
		}
	}
	return out
}

// term parses one. Without namespaces and a selector for them it is about the pod's own namespace.
func term(pod *corev1.Pod, in *corev1.PodAffinityTerm) (t Term, err error) {
	t.TopologyKey = in.TopologyKey
	t.Namespaces = sets.New(in.Namespaces...)
	if len(in.Namespaces) == 0 && in.NamespaceSelector == nil {
		t.Namespaces.Insert(pod.Namespace)
	}
	if t.Selector, err = metav1.LabelSelectorAsSelector(in.LabelSelector); err != nil {
		return t, err
	}
	t.NamespaceSelector, err = metav1.LabelSelectorAsSelector(in.NamespaceSelector)
	return t, err
}

// hostPorts are the ports a pod takes on its node: those of all containers that run as long as it does.
func hostPorts(pod *corev1.Pod) []Port {
	var out []Port
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			port := Port{IP: p.HostIP, Protocol: p.Protocol, Port: p.HostPort}
			if port.IP == "" {
				port.IP = everyIP
			}
			if port.Protocol == "" {
				port.Protocol = corev1.ProtocolTCP
			}
			out = append(out, port)
		}
	}
	for i := range pod.Spec.InitContainers {
		if r := pod.Spec.InitContainers[i].RestartPolicy; r != nil && *r == corev1.ContainerRestartPolicyAlways {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

// claims are the volume claims a pod mounts by name.
func claims(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		if c := pod.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			out = append(out, pod.Namespace+"/"+c.ClaimName)
		}
	}
	return out
}
