package container

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/node/cri"
	"proa.dev/node/fact"
	"proa.dev/node/pod"
	"proa.dev/node/podstate"
)

// Sandbox returns the runtime's configuration of a Pod's sandbox, and its runtime handler.
func (m *Maker) Sandbox(ctx context.Context, p *corev1.Pod, attempt uint32) (*cri.PodSandboxConfig, string, error) {
	handler, err := m.Handler(ctx, p)
	if err != nil {
		return nil, "", err
	}
	c := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt},
		Labels:       podLabels(p),
		Annotations:  told(p.Annotations),
		LogDirectory: m.LogDir(p),
		PortMappings: ports(p),
	}
	if c.DnsConfig, err = m.dns(p); err != nil {
		return nil, "", err
	}
	if !p.Spec.HostNetwork {
		if c.Hostname, err = unameHostname(p, m.DNS.Domain); err != nil {
			return nil, "", err
		}
	}
	if c.Linux, err = m.sandboxLinux(p, handler); err != nil {
		return nil, "", err
	}
	return c, handler, nil
}

func podLabels(p *corev1.Pod) map[string]string {
	labels := told(p.Labels)
	labels[pod.LabelName], labels[pod.LabelNamespace], labels[pod.LabelUID] = p.Name, p.Namespace, string(p.UID)
	return labels
}

// maxTold limits the bytes of the labels that the runtime is told of a sandbox or a container, and those of the annotations: it says them
// in every list, and what cannot be listed is neither measured nor cleaned up. Pods may have 256 KiB of annotations, and more of labels,
// ports and hooks.
const maxTold = 32 << 10

// told returns a copy of labels or annotations, without the largest ones if all are too many. Those that programs read are small.
func told(all map[string]string) map[string]string {
	out, room := map[string]string{}, maxTold
	size := func(name string) int { return len(name) + len(all[name]) }
	for _, name := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(size(a), size(b)), cmp.Compare(a, b))
	}) {
		if room -= size(name); room < 0 {
			break
		}
		out[name] = all[name]
	}
	return out
}

func (m *Maker) sandboxLinux(p *corev1.Pod, handler string) (*cri.LinuxPodSandboxConfig, error) {
	spaces, err := m.namespaces(p, handler)
	if err != nil {
		return nil, err
	}
	sec := &cri.LinuxSandboxSecurityContext{
		Privileged: privileged(p),
		// The sandbox itself needs no system call that the default profile forbids.
		Seccomp:          &cri.SecurityProfile{ProfileType: cri.ProfileRuntimeDefault},
		NamespaceOptions: spaces,
	}
	l := &cri.LinuxPodSandboxConfig{SecurityContext: sec, Sysctls: map[string]string{}}
	if m.Parent != nil {
		l.CgroupParent = m.Parent(p)
	}
	if s := p.Spec.SecurityContext; s != nil {
		for _, c := range s.Sysctls {
			l.Sysctls[c.Name] = c.Value
		}
		sec.RunAsUser, sec.RunAsGroup, sec.SelinuxOptions = int64Value(s.RunAsUser), int64Value(s.RunAsGroup), seLinux(s.SELinuxOptions)
	}
	if sec.SupplementalGroups, sec.SupplementalGroupsPolicy, err = m.groups(p); err != nil {
		return nil, err
	}
	l.Resources, l.Overhead = m.sandboxResources(p)
	return l, nil
}

// sandboxResources returns what all containers may use together, and the overhead of the sandbox. Runtimes that run a
// sandbox as a virtual machine need to know beforehand.
func (m *Maker) sandboxResources(p *corev1.Pod) (all, overhead *cri.LinuxContainerResources) {
	o := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := resourcehelper.PodRequests(p, o), resourcehelper.PodLimits(p, o)
	request := requests.Cpu()
	if _, ok := requests[corev1.ResourceCPU]; !ok {
		request = limits.Cpu()
	}
	exclusive := m.Limits.Policy.Exclusive != nil && m.Limits.Policy.Exclusive(p)
	all = m.Limits.toCRI(amounts{request: quantity.MilliValue(request), cpu: quantity.MilliValue(limits.Cpu()),
		memory:    quantity.Value(limits.Memory()),
		exclusive: exclusive})
	overhead = &cri.LinuxContainerResources{}
	if p.Spec.Overhead != nil {
		cpu := quantity.MilliValue(p.Spec.Overhead.Cpu())
		overhead = m.Limits.toCRI(amounts{request: cpu, cpu: cpu, memory: quantity.Value(p.Spec.Overhead.Memory())})
	}
	return all, overhead
}

// ports returns the port mappings of the containers. Which of them are opened on the node is decided by the network.
func ports(p *corev1.Pod) (out []*cri.PortMapping) {
	for _, c := range longRunningContainers(p) {
		seen := map[string]bool{}
		for _, port := range c.Ports {
			name := port.Name
			if name == "" {
				name = fmt.Sprintf("%s %s %d %d", port.Protocol, port.HostIP, port.ContainerPort, port.HostPort)
			}
			if seen[name] {
				continue
			}
			seen[name] = true
			out = append(out, &cri.PortMapping{HostIp: port.HostIP, HostPort: port.HostPort, ContainerPort: port.ContainerPort,
				Protocol: protocol(port.Protocol)})
		}
	}
	return out
}

// longRunningContainers returns the containers that run as long as the Pod does: sidecars and regular containers.
func longRunningContainers(p *corev1.Pod) (out []*corev1.Container) {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; podstate.IsSidecar(c) {
			out = append(out, c)
		}
	}
	for i := range p.Spec.Containers {
		out = append(out, &p.Spec.Containers[i])
	}
	return out
}

func protocol(p corev1.Protocol) cri.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return cri.ProtocolUDP
	case corev1.ProtocolSCTP:
		return cri.ProtocolSCTP
	}
	return cri.ProtocolTCP
}

func privileged(p *corev1.Pod) bool {
	for c := range fact.AllContainers(p) {
		if c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged) {
			return true
		}
	}
	return false
}

// namespaces returns which namespaces a Pod shares with the node, and its containers with each other.
func (m *Maker) namespaces(p *corev1.Pod, handler string) (*cri.NamespaceOption, error) {
	o := &cri.NamespaceOption{Ipc: cri.NamespacePod, Network: cri.NamespacePod, Pid: cri.NamespaceContainer}
	if p.Spec.HostIPC {
		o.Ipc = cri.NamespaceNode
	}
	if p.Spec.HostNetwork {
		o.Network = cri.NamespaceNode
	}
	switch share := p.Spec.ShareProcessNamespace; {
	case p.Spec.HostPID:
		o.Pid = cri.NamespaceNode
	case share != nil && *share:
		o.Pid = cri.NamespacePod
	}
	var err error
	o.UsernsOptions, err = m.userNamespace(p, handler)
	return o, err
}

// groups returns the supplemental groups of the processes of a Pod.
func (m *Maker) groups(p *corev1.Pod) (out []int64, policy cri.SupplementalGroupsPolicy, err error) {
	if s := p.Spec.SecurityContext; s != nil {
		if s.FSGroup != nil {
			out = append(out, *s.FSGroup)
		}
		out = append(out, s.SupplementalGroups...)
		if s.SupplementalGroupsPolicy != nil {
			switch *s.SupplementalGroupsPolicy {
			case corev1.SupplementalGroupsPolicyMerge:
				policy = cri.GroupsMerge
			case corev1.SupplementalGroupsPolicyStrict:
				policy = cri.GroupsStrict
			default:
				return nil, 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *s.SupplementalGroupsPolicy)
			}
		}
	}
	if m.Groups != nil {
		out = append(out, m.Groups(p)...)
	}
	return out, policy, nil
}

func int64Value(n *int64) *cri.Int64Value {
	if n == nil {
		return nil
	}
	return &cri.Int64Value{Value: *n}
}

func seLinux(o *corev1.SELinuxOptions) *cri.SELinuxOption {
	if o == nil {
		return nil
	}
	return &cri.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
