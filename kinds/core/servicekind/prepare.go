package servicekind

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/lib/defaulting"
)

// prepareService restores allocated values that a client left out, and drops values that the new type of a service
// does not have.
func prepareService(s, old *corev1.Service) {
	if old == nil {
		alignClusterIPs(s, nil)
		return
	}
	completeStored(old)
	keepAllocated(s, old)
	alignClusterIPs(s, old)
	dropForType(s, old)
}

// completeStored sets the fields of a stored service that did not exist when it was written.
func completeStored(s *corev1.Service) {
	alignClusterIPs(s, nil)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		s.Spec.InternalTrafficPolicy = nil
		return
	}
	if len(s.Spec.IPFamilies) > 0 || isHeadless(s) {
		return
	}
	for _, ip := range s.Spec.ClusterIPs {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, familyOf(ip))
	}
	switch len(s.Spec.IPFamilies) {
	case 1:
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	case 2:
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
}

func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func hasAddress(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// wantsNodePorts reports whether ports without a node port get one.
func wantsNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
			(s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts)
}

// keepAllocated restores allocated values, so that a client can apply its manifest again without them.
func keepAllocated(s, old *corev1.Service) {
	if hasAddress(old) && hasAddress(s) {
		defaulting.IfZero(&s.Spec.ClusterIP, old.Spec.ClusterIP)
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if wantsNodePorts(old) && wantsNodePorts(s) {
		had, used := map[string]int32{}, map[int32]bool{}
		for _, p := range old.Spec.Ports {
			had[p.Name] = p.NodePort
			used[p.NodePort] = p.NodePort != 0 &&
				slices.ContainsFunc(s.Spec.Ports, func(n corev1.ServicePort) bool { return n.NodePort == p.NodePort })
		}
		for i := range s.Spec.Ports {
			if p := &s.Spec.Ports[i]; p.NodePort == 0 && !used[had[p.Name]] {
				p.NodePort = had[p.Name]
			}
		}
	}
	if needsHealthPort(old) && needsHealthPort(s) {
		defaulting.IfZero(&s.Spec.HealthCheckNodePort, old.Spec.HealthCheckNodePort)
	}
}

// alignClusterIPs updates spec.clusterIPs from spec.clusterIP, for clients that know only the latter.
func alignClusterIPs(s, old *corev1.Service) {
	if old == nil {
		if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		}
		return
	}
	if len(old.Spec.ClusterIPs) > 0 && len(s.Spec.ClusterIPs) == 0 && old.Spec.ClusterIP == s.Spec.ClusterIP {
		s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
	}
	if old.Spec.ClusterIP == s.Spec.ClusterIP || !slices.Equal(old.Spec.ClusterIPs, s.Spec.ClusterIPs) {
		return
	}
	if s.Spec.ClusterIP == "" {
		s.Spec.ClusterIPs = nil
	} else {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// dropForType clears the fields that the new type of a service does not have, if the client did not change them.
// Validation refuses the others.
func dropForType(s, old *corev1.Service) {
	spec, was := &s.Spec, &old.Spec
	if hasAddress(old) && !hasAddress(s) {
		if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		if ptr.Deref(spec.IPFamilyPolicy, "") == ptr.Deref(was.IPFamilyPolicy, "") {
			spec.IPFamilyPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(s) && hasOnlyNodePortsOf(s, old) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthPort(old) && !needsHealthPort(s) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		if a, b := spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts; a != nil && b != nil && *a == *b {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(spec.LoadBalancerClass, was.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
	}
	if isExternallyReachable(old) && !isExternallyReachable(s) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// hasOnlyNodePortsOf reports whether all node ports of s are node ports of old.
func hasOnlyNodePortsOf(s, old *corev1.Service) bool {
	return !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.NodePort != 0 && !slices.Contains(nodePortsOf(old), int(p.NodePort))
	})
}

func nodePortsOf(s *corev1.Service) []int {
	var ports []int
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports = append(ports, int(p.NodePort))
		}
	}
	return ports
}
