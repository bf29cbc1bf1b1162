package framework

import (
	"fmt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

// PodInfo is a Pod with precomputed values for scheduling. It is shared and read-only.
type PodInfo struct {
	Pod *corev1.Pod
	// Requests are the resources that the Pod takes on a node. NonZeroCPU and NonZeroMemory include defaults for
	// containers without requests; they are used to spread Pods evenly.
	Requests      Resources
	NonZeroCPU    int64
	NonZeroMemory int64
	// Ports are the host ports of the Pod.
	Ports []Port
	// Claims are the PersistentVolumeClaims that the Pod mounts, as namespace/name.
	Claims []string

	Affinity           []AffinityTerm // required, towards other pods
	AntiAffinity       []AffinityTerm
	PreferAffinity     []WeightedAffinityTerm
	PreferAntiAffinity []WeightedAffinityTerm
}

// Port is a host port on one address of a node, or on all if IP is 0.0.0.0.
type Port struct {
	IP       string
	Protocol corev1.Protocol
	Port     int32
}

const anyIP = "0.0.0.0"

// ConflictsWith reports whether two Pods on one node cannot both have these ports.
func (p Port) ConflictsWith(q Port) bool {
	return p.Port == q.Port && p.Protocol == q.Protocol && (p.IP == q.IP || p.IP == anyIP || q.IP == anyIP)
}

// AffinityTerm is a parsed Pod affinity term.
type AffinityTerm struct {
	Namespaces        sets.Set[string]
	NamespaceSelector labels.Selector
	Selector          labels.Selector
	TopologyKey       string
}

// WeightedAffinityTerm is a preferred AffinityTerm.
type WeightedAffinityTerm struct {
	AffinityTerm
	Weight int32
}

// Matches reports whether the term selects a Pod. namespaceLabels are the labels of the Pod's namespace.
func (t *AffinityTerm) Matches(pod *corev1.Pod, namespaceLabels labels.Set) bool {
	if !t.Namespaces.Has(pod.Namespace) && !t.NamespaceSelector.Matches(namespaceLabels) {
		return false
	}
	return t.Selector.Matches(labels.Set(pod.Labels))
}

// NewPodInfo returns the PodInfo of a Pod.
func NewPodInfo(pod *corev1.Pod) *PodInfo {
	p := &PodInfo{Pod: pod, Ports: HostPorts(pod), Claims: ClaimNames(pod)}
	p.Requests, p.NonZeroCPU, p.NonZeroMemory = podRequests(pod)
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			p.Affinity = parseTerms(pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.PreferAffinity = parseWeightedTerms(pod, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			p.AntiAffinity = parseTerms(pod, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.PreferAntiAffinity = parseWeightedTerms(pod, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	return p
}

// updated returns the PodInfo of a newer state of a Pod on a node. Only the requests of such a Pod can change.
func (p *PodInfo) updated(pod *corev1.Pod) *PodInfo {
	if !hasEqualRequests(p.Pod, pod) {
		return NewPodInfo(pod)
	}
	out := *p
	out.Pod = pod
	return &out
}

// HasPodAffinity reports whether the Pod has any affinity or anti-affinity to Pods.
func (p *PodInfo) HasPodAffinity() bool {
	return len(p.Affinity)+len(p.AntiAffinity)+len(p.PreferAffinity)+len(p.PreferAntiAffinity) > 0
}

// Priority returns the priority of the Pod.
func (p *PodInfo) Priority() int32 { return PodPriority(p.Pod) }

// PodPriority returns the priority of a Pod; 0 if it has none.
func PodPriority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// parseTerms parses affinity terms. Terms that cannot be parsed, which older API servers accepted, are skipped.
func parseTerms(pod *corev1.Pod, in []corev1.PodAffinityTerm) []AffinityTerm {
	var out []AffinityTerm
	for i := range in {
		if t, err := parseTerm(pod, &in[i]); err == nil {
			out = append(out, t)
		}
	}
	return out
}

func parseWeightedTerms(pod *corev1.Pod, in []corev1.WeightedPodAffinityTerm) []WeightedAffinityTerm {
	var out []WeightedAffinityTerm
	for i := range in {
		if t, err := parseTerm(pod, &in[i].PodAffinityTerm); err == nil {
			out = append(out, WeightedAffinityTerm{AffinityTerm: t, Weight: in[i].Weight})
		}
	}
	return out
}

// parseTerm parses an affinity term. Without namespaces and namespace selector it applies to the namespace of the Pod.
func parseTerm(pod *corev1.Pod, in *corev1.PodAffinityTerm) (t AffinityTerm, err error) {
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

// HostPorts returns the host ports of a Pod: those of its containers and of its sidecars.
func HostPorts(pod *corev1.Pod) []Port {
	var out []Port
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			port := Port{IP: p.HostIP, Protocol: p.Protocol, Port: p.HostPort}
			if port.IP == "" {
				port.IP = anyIP
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

// ClaimNames returns the PersistentVolumeClaims that a Pod mounts, as namespace/name.
func ClaimNames(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		if c := pod.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			out = append(out, pod.Namespace+"/"+c.ClaimName)
		}
	}
	return out
}

// MaxTerms is how many affinity terms, or spread constraints, of a Pod are evaluated. Each is evaluated for every Pod of the cluster, and
// those of a Pod that has a node for every Pod that is scheduled afterwards, whoever it belongs to.
const MaxTerms = 1000

// TooManyTerms returns the rejection of a Pod that has more terms than are evaluated; nil if it has not.
func TooManyTerms(what string, n int) *Rejection {
	if n <= MaxTerms {
		return nil
	}
	return Unresolvable(fmt.Sprintf("pod has %d %s, and %d are the most with which it is scheduled", n, what, MaxTerms))
}
