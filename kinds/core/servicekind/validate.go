package servicekind

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/lib/check"
)

const onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"

// validateService checks a service. Contradictions in what is to be allocated are reported alone, because other
// errors may follow from them.
func validateService(s, old *corev1.Service) field.ErrorList {
	if errs := findContradictions(s, old); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	if old != nil {
		errs = append(errs, validateClusterIPChange(s, old)...)
		errs = append(errs, validateFamilyChange(s, old)...)
		errs = append(errs, loadBalancerClass(s, old)...)
		if needsHealthPort(s) && needsHealthPort(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "healthCheckNodePort"), "field is immutable"))
		}
	}
	return append(errs, validateServiceAlone(s, old)...)
}

// validateServiceAlone checks a service by itself.
func validateServiceAlone(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	annotations := field.NewPath("metadata", "annotations")
	hints, hinted := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if mode, ok := s.Annotations[corev1.AnnotationTopologyMode]; ok && hinted && mode != hints {
		errs = append(errs, field.Invalid(annotations.Key(corev1.AnnotationTopologyMode), mode,
			fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints)))
	}
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(spec.Child("ports"), ""))
	}
	errs = append(errs, serviceType(s, spec)...)
	names := map[string]bool{}
	for i := range s.Spec.Ports {
		errs = append(errs, servicePort(&s.Spec.Ports[i], len(s.Spec.Ports) > 1, names, spec.Child("ports").Index(i))...)
	}
	errs = append(errs, metavalidation.ValidateLabels(s.Spec.Selector, spec.Child("selector"))...)
	errs = append(errs, sessionAffinity(&s.Spec, spec)...)
	errs = append(errs, validateClusterIPs(s, old)...)
	var had []string
	if old != nil {
		had = old.Spec.ExternalIPs
	}
	for i, ip := range s.Spec.ExternalIPs {
		at := spec.Child("externalIPs").Index(i)
		bad := check.IP(ip, at, had)
		if len(bad) == 0 {
			bad = check.EndpointIP(ip, at)
		}
		errs = append(errs, bad...)
	}
	errs = append(errs, check.OneOfOrRequired(s.Spec.Type, spec.Child("type"), corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	errs = append(errs, validatePortCollisions(s, spec.Child("ports"))...)
	errs = append(errs, validateSourceRanges(s, old, spec, annotations)...)
	if s.Spec.AllocateLoadBalancerNodePorts != nil && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(spec.Child("allocateLoadBalancerNodePorts"), onlyLoadBalancer))
	}
	if s.Spec.AllocateLoadBalancerNodePorts == nil && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Required(field.NewPath("allocateLoadBalancerNodePorts"), ""))
	}
	errs = append(errs, loadBalancerClass(s, nil)...)
	return append(errs, trafficPolicies(s, spec)...)
}

func serviceType(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if isHeadless(s) {
			errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(0), s.Spec.ClusterIPs[0],
				fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type)))
		}
	case corev1.ServiceTypeExternalName:
		const text = "may not be set for ExternalName services"
		if len(s.Spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(spec.Child("clusterIPs"), text))
		}
		if len(s.Spec.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(spec.Child("ipFamilies"), text))
		}
		if s.Spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(spec.Child("ipFamilyPolicy"), text))
		}
		if name := strings.TrimSuffix(s.Spec.ExternalName, "."); name != "" {
			errs = append(errs, check.DNSSubdomain(name, spec.Child("externalName"))...)
		} else {
			errs = append(errs, field.Required(spec.Child("externalName"), ""))
		}
	}
	return errs
}

func servicePort(p *corev1.ServicePort, named bool, names map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.Name != "":
		errs = append(errs, check.DNSLabel(p.Name, at.Child("name"))...)
		if names[p.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names[p.Name] = true
	case named:
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	errs = append(errs, check.Messages(p.Port, at.Child("port"), validation.IsValidPortNum(int(p.Port)))...)
	errs = append(errs, check.OneOfOrRequired(p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP,
		corev1.ProtocolUDP)...)
	if target := at.Child("targetPort"); p.TargetPort.Type == intstr.String {
		errs = append(errs, check.Messages(p.TargetPort.StrVal, target, validation.IsValidPortName(p.TargetPort.StrVal))...)
	} else {
		errs = append(errs, check.Messages(p.TargetPort.IntValue(), target, validation.IsValidPortNum(p.TargetPort.IntValue()))...)
	}
	if p.AppProtocol != nil {
		errs = append(errs, check.QualifiedName(*p.AppProtocol, at.Child("appProtocol"))...)
	}
	return errs
}

// validatePortCollisions refuses node ports where the type has none, and duplicate ports.
func validatePortCollisions(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Spec.Type == corev1.ServiceTypeClusterIP {
		for i, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				errs = append(errs, field.Forbidden(path.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
			}
		}
	}
	type id struct {
		protocol corev1.Protocol
		port     int32
	}
	seen := map[id]bool{}
	for i, p := range s.Spec.Ports {
		if p.NodePort != 0 && seen[id{p.Protocol, p.NodePort}] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("nodePort"), p.NodePort))
		}
		seen[id{p.Protocol, p.NodePort}] = true
	}
	clear(seen)
	for i, p := range s.Spec.Ports {
		if seen[id{p.Protocol, p.Port}] {
			errs = append(errs, field.Duplicate(path.Index(i), check.GoFields(corev1.ServicePort{Protocol: p.Protocol, Port: p.Port})))
		}
		seen[id{p.Protocol, p.Port}] = true
	}
	return errs
}

func sessionAffinity(s *corev1.ServiceSpec, spec *field.Path) field.ErrorList {
	errs := check.OneOfOrRequired(s.SessionAffinity, spec.Child("sessionAffinity"), corev1.ServiceAffinityClientIP,
		corev1.ServiceAffinityNone)
	config, c := spec.Child("sessionAffinityConfig"), s.SessionAffinityConfig
	switch s.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if c != nil {
			errs = append(errs, field.Forbidden(config, "must not be set when session affinity is None"))
		}
	case corev1.ServiceAffinityClientIP:
		const text = "when session affinity type is ClientIP"
		timeout := config.Child("clientIP", "timeoutSeconds")
		switch {
		case c == nil:
			errs = append(errs, field.Required(config, text))
		case c.ClientIP == nil:
			errs = append(errs, field.Required(config.Child("clientIP"), text))
		case c.ClientIP.TimeoutSeconds == nil:
			errs = append(errs, field.Required(timeout, text))
		case *c.ClientIP.TimeoutSeconds <= 0 || *c.ClientIP.TimeoutSeconds > maxAffinitySeconds:
			errs = append(errs, field.Invalid(timeout, *c.ClientIP.TimeoutSeconds,
				fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
		}
	}
	return errs
}

// maxAffinitySeconds bounds the timeout of session affinity: a day.
const maxAffinitySeconds = 86400

// validateSourceRanges checks the CIDRs from which a load balancer accepts traffic. They may have spaces around them.
func validateSourceRanges(s, old *corev1.Service, spec, annotations *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		at := spec.Child("LoadBalancerSourceRanges")
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			errs = append(errs, field.Forbidden(at, onlyLoadBalancer))
		}
		var had []string
		if old != nil {
			for _, cidr := range old.Spec.LoadBalancerSourceRanges {
				had = append(had, strings.TrimSpace(cidr))
			}
		}
		for i, cidr := range s.Spec.LoadBalancerSourceRanges {
			errs = append(errs, check.CIDR(strings.TrimSpace(cidr), at.Index(i), had)...)
		}
		return errs
	}
	text, ok := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !ok {
		return nil
	}
	at := annotations.Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(at, onlyLoadBalancer))
	}
	if old != nil && old.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] == text {
		return errs
	}
	if text = strings.TrimSpace(text); text != "" {
		for cidr := range strings.SplitSeq(text, ",") {
			errs = append(errs, check.CIDR(strings.TrimSpace(cidr), at, nil)...)
		}
	}
	return errs
}

func loadBalancerClass(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	at, class := field.NewPath("spec", "loadBalancerClass"), s.Spec.LoadBalancerClass
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if old != nil && balanced && old.Spec.Type == corev1.ServiceTypeLoadBalancer && !ptr.Equal(class, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(at, class, "may not change once set"))
	}
	switch {
	case class == nil:
	case balanced:
		errs = append(errs, check.QualifiedName(*class, at)...)
	default:
		errs = append(errs, field.Forbidden(at, onlyLoadBalancer))
	}
	return errs
}

func trafficPolicies(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if at := spec.Child("externalTrafficPolicy"); isExternallyReachable(s) {
		errs = append(errs, check.OneOfOrRequired(s.Spec.ExternalTrafficPolicy, at, corev1.ServiceExternalTrafficPolicyCluster,
			corev1.ServiceExternalTrafficPolicyLocal)...)
	} else if s.Spec.ExternalTrafficPolicy != "" {
		errs = append(errs, field.Invalid(at, s.Spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	}
	// A missing health check port is allocated when the service is written.
	if at, port := spec.Child("healthCheckNodePort"), s.Spec.HealthCheckNodePort; port != 0 {
		if needsHealthPort(s) {
			errs = append(errs, check.Messages(port, at, validation.IsValidPortNum(int(port)))...)
		} else {
			errs = append(errs, field.Invalid(at, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		}
	}
	internal := spec.Child("internalTrafficPolicy")
	if s.Spec.InternalTrafficPolicy == nil && (hasNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP) {
		errs = append(errs, field.Required(internal, ""))
	}
	errs = append(errs, check.OneOfIfSet(s.Spec.InternalTrafficPolicy, internal, corev1.ServiceInternalTrafficPolicyCluster,
		corev1.ServiceInternalTrafficPolicyLocal)...)
	return append(errs, check.OneOfIfSet(s.Spec.TrafficDistribution, spec.Child("trafficDistribution"),
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode)...)
}

func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := s.Status.LoadBalancer.Ingress
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if len(ingress) > 0 {
			return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")}
		}
		return nil
	}
	var errs field.ErrorList
	var had []string
	for _, i := range old.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			had = append(had, i.IP)
		}
	}
	for i, in := range ingress {
		at := path.Index(i)
		if in.IP != "" {
			errs = append(errs, check.IP(in.IP, at.Child("ip"), had)...)
		}
		switch mode := at.Child("ipMode"); {
		case in.IPMode == nil && in.IP != "":
			errs = append(errs, field.Required(mode, "must be specified when `ip` is set"))
		case in.IPMode != nil && in.IP == "":
			errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
		default:
			errs = append(errs, check.OneOfIfSet(in.IPMode, mode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
		}
		if in.Hostname != "" {
			errs = append(errs, check.DNSSubdomain(in.Hostname, at.Child("hostname"))...)
			if netutils.ParseIPSloppy(in.Hostname) != nil {
				errs = append(errs, field.Invalid(at.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}
