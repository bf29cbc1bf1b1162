package networking

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/lib/check"
)

const notAnAddress = "must be a DNS name, not an IP address"

func validateIngress(in, old *networkingv1.Ingress) field.ErrorList {
	s, path := &in.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, s.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if s.DefaultBackend != nil {
		errs = append(errs, validateBackend(s.DefaultBackend, path.Child("defaultBackend"))...)
	}
	oldWildcards := hasInvalidWildcardRule(old)
	for i := range s.Rules {
		errs = append(errs, validateIngressRule(&s.Rules[i], path.Child("rules").Index(i), oldWildcards)...)
	}
	errs = append(errs, validateTLS(s.TLS, path.Child("tls"), hasInvalidSecretName(old))...)
	if c := s.IngressClassName; c != nil {
		errs = append(errs, check.DNSSubdomain(*c, path.Child("ingressClassName"))...)
	}
	if class, set := in.Annotations[classAnnotation]; set && old == nil && s.IngressClassName != nil && class != *s.IngressClassName {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(classAnnotation), class,
			"must match `ingressClassName` when both are specified"))
	}
	return errs
}

func validateIngressRule(r *networkingv1.IngressRule, path *field.Path, oldWildcards bool) field.ErrorList {
	var errs field.ErrorList
	if r.Host != "" {
		if netutils.ParseIPSloppy(r.Host) != nil {
			errs = append(errs, field.Invalid(path.Child("host"), r.Host, notAnAddress))
		}
		errs = append(errs, validateHost(r.Host, path.Child("host"))...)
	}
	if strings.Contains(r.Host, "*") && oldWildcards {
		return errs
	}
	return append(errs, validateHTTP(r.HTTP, path.Child("http"))...)
}

func validateHost(host string, path *field.Path) field.ErrorList {
	if strings.Contains(host, "*") {
		return check.Messages(host, path, utilvalidation.IsWildcardDNS1123Subdomain(host))
	}
	return check.DNSSubdomain(host, path)
}

func validateHTTP(h *networkingv1.HTTPIngressRuleValue, path *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	if len(h.Paths) == 0 {
		return field.ErrorList{field.Required(path.Child("paths"), "")}
	}
	var errs field.ErrorList
	for i := range h.Paths {
		errs = append(errs, validatePath(&h.Paths[i], path.Child("paths").Index(i))...)
	}
	return errs
}

func validatePath(p *networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	var errs field.ErrorList
	wrong := func(text string, args ...any) {
		errs = append(errs, field.Invalid(path.Child("path"), p.Path, fmt.Sprintf(text, args...)))
	}
	absolute := strings.HasPrefix(p.Path, "/")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !absolute {
			wrong("must be an absolute path")
		}
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, part) {
				wrong("must not contain '%s'", part)
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, end) {
				wrong("cannot end with '%s'", end)
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !absolute {
			wrong("must be an absolute path")
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("pathType"), *p.PathType,
			[]networkingv1.PathType{networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix}))
	}
	return append(errs, validateBackend(&p.Backend, path.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateResourceBackend(b.Resource, path.Child("resource"))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
	}
	var errs field.ErrorList
	service, port := b.Service, b.Service.Port
	if service.Name == "" {
		errs = append(errs, field.Required(path.Child("service", "name"), ""))
	} else {
		errs = append(errs, check.Messages(service.Name, path.Child("service", "name"), validation.NameIsDNSLabel(service.Name, false))...)
	}
	switch {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, check.Messages(port.Name, path.Child("service", "port", "name"), utilvalidation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		errs = append(errs, check.Messages(port.Number, path.Child("service", "port", "number"),
			utilvalidation.IsValidPortNum(int(port.Number)))...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

func validateResourceBackend(r *corev1.TypedLocalObjectReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.APIGroup != nil {
		errs = append(errs, check.DNSSubdomain(*r.APIGroup, path.Child("apiGroup"))...)
	}
	errs = append(errs, check.RequiredPathSegment(r.Kind, path.Child("kind"), "")...)
	return append(errs, check.RequiredPathSegment(r.Name, path.Child("name"), "")...)
}

func validateTLS(list []networkingv1.IngressTLS, path *field.Path, oldSecrets bool) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		for j, host := range t.Hosts {
			errs = append(errs, validateHost(host, path.Index(i).Child("hosts").Index(j))...)
		}
		if t.SecretName != "" && !oldSecrets {
			errs = append(errs, check.DNSSubdomain(t.SecretName, path.Index(i).Child("secretName"))...)
		}
	}
	return errs
}

// Stored objects may go on breaking rules that are newer than they are.

func hasInvalidSecretName(old *networkingv1.Ingress) bool {
	if old == nil {
		return false
	}
	for _, t := range old.Spec.TLS {
		if t.SecretName != "" && len(validation.NameIsDNSSubdomain(t.SecretName, false)) > 0 {
			return true
		}
	}
	return false
}

func hasInvalidWildcardRule(old *networkingv1.Ingress) bool {
	if old == nil {
		return false
	}
	for _, r := range old.Spec.Rules {
		if strings.Contains(r.Host, "*") && len(validateHTTP(r.HTTP, nil)) > 0 {
			return true
		}
	}
	return false
}

func validateIngressStatus(in, old *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	var stored []string
	for _, b := range old.Status.LoadBalancer.Ingress {
		stored = append(stored, b.IP)
	}
	for i, b := range in.Status.LoadBalancer.Ingress {
		path := field.NewPath("status", "loadBalancer", "ingress").Index(i)
		if b.IP != "" {
			errs = append(errs, check.IP(b.IP, path.Child("ip"), stored)...)
		}
		if b.Hostname == "" {
			continue
		}
		errs = append(errs, check.DNSSubdomain(b.Hostname, path.Child("hostname"))...)
		if netutils.ParseIPSloppy(b.Hostname) != nil {
			errs = append(errs, field.Invalid(path.Child("hostname"), b.Hostname, notAnAddress))
		}
	}
	return errs
}
