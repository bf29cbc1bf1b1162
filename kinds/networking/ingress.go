package networking

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/kind"
)

// classAnnotation names the class of an ingress; the field spec.ingressClassName replaced it.
const classAnnotation = "kubernetes.io/ingress.class"

// Ingresses route HTTP from outside to services.
func Ingresses() *kind.Def {
	return kind.Define(kind.Resource[networkingv1.Ingress]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}, Plural: "ingresses",
			Short: []string{"ing"}, StorageFolder: "ingress",
			Generation: true,
		},
		Spec:     func(i *networkingv1.Ingress) any { return &i.Spec },
		Status:   func(i *networkingv1.Ingress) any { return &i.Status },
		Validate: validateIngress,
		Warn: func(i, old *networkingv1.Ingress) []string {
			if _, set := i.Annotations[classAnnotation]; set && old == nil && i.Spec.IngressClassName == nil {
				return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation)}
			}
			return nil
		},
		Columns: []kind.Column[networkingv1.Ingress]{
			kind.NameColumn[networkingv1.Ingress](),
			{Name: "Class", Description: "The name of the IngressClass resource that should be used for additional configuration", Value: func(i *networkingv1.Ingress) any {
				if i.Spec.IngressClassName == nil {
					return "<none>"
				}
				return *i.Spec.IngressClassName
			}},
			{Name: "Hosts", Description: "Hosts that incoming requests are matched against before the ingress rule", Value: hosts},
			{Name: "Address", Description: "Address is a list containing ingress points for the load-balancer", Value: addresses},
			{Name: "Ports", Description: "Ports of TLS configurations that open", Value: func(i *networkingv1.Ingress) any {
				if len(i.Spec.TLS) > 0 {
					return "80, 443"
				}
				return "80"
			}},
			kind.AgeColumn[networkingv1.Ingress](),
		},
		Subs: []kind.Sub[networkingv1.Ingress]{{Name: "status", Validate: validateIngressStatus, Warn: warnIngressStatus}},
	})
}

const hostsShown = 3

func hosts(i *networkingv1.Ingress) any {
	var list []string
	more := false
	for _, rule := range i.Spec.Rules {
		more = more || len(list) == hostsShown
		if !more && rule.Host != "" {
			list = append(list, rule.Host)
		}
	}
	switch cell := strings.Join(list, ","); {
	case len(list) == 0:
		return "*"
	case more:
		return fmt.Sprintf("%s + %d more...", cell, len(i.Spec.Rules)-hostsShown)
	default:
		return cell
	}
}

func addresses(i *networkingv1.Ingress) any {
	var list []string
	for _, in := range i.Status.LoadBalancer.Ingress {
		if address := in.IP; address != "" {
			list = append(list, address)
		} else if in.Hostname != "" {
			list = append(list, in.Hostname)
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ",")
}

func warnIngressStatus(i, _ *networkingv1.Ingress) []string {
	var warnings []string
	for n, in := range i.Status.LoadBalancer.Ingress {
		if netutils.ParseIPSloppy(in.IP) != nil {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(n),
				in.IP)...)
		}
	}
	return warnings
}
