// Package servicekind declares Services: their defaulting and validation, the allocation of cluster IPs and node ports in the transaction
// of a write, and the proxy to their endpoints.
package servicekind

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/connectoptions"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/defaulting"
)

// Services give sets of pods a name and addresses. Cluster IPs and node ports are allocated in the transaction that
// writes the service.
func Services() *kind.Def {
	return kind.Define(kind.Resource[corev1.Service]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Plural: "services", Short: []string{"svc"},
			Categories:    []string{"all"},
			StorageFolder: "services/specs", CreateOnUpdate: true,
		},
		Name:     apivalidation.NameIsDNSLabel,
		Spec:     func(s *corev1.Service) any { return &s.Spec },
		Status:   func(s *corev1.Service) any { return &s.Status },
		Default:  defaultService,
		Prepare:  prepareService,
		Validate: validateService,
		Warn:     func(s, _ *corev1.Service) []string { return serviceWarnings(s) },
		Begin:    beginService,
		Delete:   kind.Deletion[corev1.Service]{ReturnsObject: true},
		Columns:  serviceColumns(),
		Fields: map[string]func(*corev1.Service) string{
			"spec.clusterIP": func(s *corev1.Service) string { return s.Spec.ClusterIP },
			"spec.type":      func(s *corev1.Service) string { return string(s.Spec.Type) },
		},
		Subs: []kind.Sub[corev1.Service]{
			{Name: "status", Validate: validateServiceStatus, Warn: serviceStatusWarnings},
			{
				Name: "proxy", Verbs: connectoptions.ProxyVerbs(),
				Body:    connectoptions.Body("ServiceProxyOptions", connectoptions.ServiceProxy),
				Connect: connectService,
			},
		},
	})
}

func serviceColumns() []kind.Column[corev1.Service] {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return []kind.Column[corev1.Service]{
		kind.NameColumn[corev1.Service](),
		{Name: "Type", Description: doc["type"], Value: func(s *corev1.Service) any { return string(s.Spec.Type) }},
		{Name: "Cluster-IP", Description: doc["clusterIP"], Value: func(s *corev1.Service) any {
			if len(s.Spec.ClusterIPs) == 0 {
				return "<none>"
			}
			return s.Spec.ClusterIPs[0]
		}},
		{Name: "External-IP", Description: doc["externalIPs"], Value: func(s *corev1.Service) any { return externalAddress(s) }},
		{Name: "Port(s)", Description: doc["ports"], Value: func(s *corev1.Service) any { return portsText(s.Spec.Ports) }},
		kind.AgeColumn[corev1.Service](),
		{Name: "Selector", Wide: true, Description: doc["selector"],
			Value: func(s *corev1.Service) any { return labels.FormatLabels(s.Spec.Selector) }},
	}
}

func externalAddress(s *corev1.Service) string {
	list := s.Spec.ExternalIPs
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var ingress []string
		for _, i := range s.Status.LoadBalancer.Ingress {
			if address := cmp.Or(i.IP, i.Hostname); address != "" {
				ingress = append(ingress, address)
			}
		}
		slices.Sort(ingress)
		if list = append(slices.Compact(ingress), list...); len(list) == 0 {
			return "<pending>"
		}
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		if len(list) == 0 {
			return "<none>"
		}
	default:
		return "<unknown>"
	}
	return strings.Join(list, ",")
}

func portsText(ports []corev1.ServicePort) string {
	if len(ports) == 0 {
		return "<none>"
	}
	list := make([]string, len(ports))
	for i, p := range ports {
		list[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			list[i] = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
	}
	return strings.Join(list, ",")
}

// isExternallyReachable reports whether a service accepts traffic from outside of the cluster.
func isExternallyReachable(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer || s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

// needsHealthPort reports whether load balancers probe each node for local endpoints of the service.
func needsHealthPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func isHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	defaulting.IfZero(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch c := spec.SessionAffinityConfig; {
	case spec.SessionAffinity == corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case spec.SessionAffinity != corev1.ServiceAffinityClientIP:
	case c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil:
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)}}
	}
	defaulting.IfZero(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		defaulting.IfZero(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if isExternallyReachable(s) {
		defaulting.IfZero(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	switch spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP:
		defaulting.IfNil(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	defaulting.IfNil(&spec.AllocateLoadBalancerNodePorts, true)
	for i := range s.Status.LoadBalancer.Ingress {
		if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
			defaulting.IfNil(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}

func serviceWarnings(s *corev1.Service) []string {
	var warnings []string
	spec := field.NewPath("spec")
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		warnings = append(warnings, fmt.Sprintf("annotation %s is deprecated, please use %s instead",
			corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range s.Spec.ClusterIPs {
			warnings = append(warnings, validation.GetWarningsForIP(spec.Child("clusterIPs").Index(i), ip)...)
		}
	}
	headless := s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ClusterIP == corev1.ClusterIPNone
	if headless {
		if s.Spec.LoadBalancerIP != "" {
			warnings = append(warnings, "spec.loadBalancerIP is ignored for headless services")
		}
		if len(s.Spec.ExternalIPs) > 0 {
			warnings = append(warnings, "spec.externalIPs is ignored for headless services")
		}
		if s.Spec.SessionAffinity != corev1.ServiceAffinityNone {
			warnings = append(warnings, "spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range s.Spec.ExternalIPs {
		warnings = append(warnings, validation.GetWarningsForIP(spec.Child("externalIPs").Index(i), ip)...)
	}
	external := s.Spec.Type == corev1.ServiceTypeExternalName
	if len(s.Spec.ExternalIPs) > 0 && !headless && !external {
		warnings = append(warnings, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if s.Spec.LoadBalancerIP != "" {
		warnings = append(warnings, validation.GetWarningsForIP(spec.Child("loadBalancerIP"), s.Spec.LoadBalancerIP)...)
	}
	for i, cidr := range s.Spec.LoadBalancerSourceRanges {
		warnings = append(warnings, validation.GetWarningsForCIDR(spec.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	if external && len(s.Spec.ExternalIPs) > 0 {
		warnings = append(warnings, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if !external && s.Spec.ExternalName != "" {
		warnings = append(warnings, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if ptr.Deref(s.Spec.TrafficDistribution, "") == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q",
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return warnings
}

func serviceStatusWarnings(s, _ *corev1.Service) []string {
	var warnings []string
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i),
				ingress.IP)...)
		}
	}
	return warnings
}
