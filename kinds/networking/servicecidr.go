package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// ServiceCIDRs are the ranges that cluster IPs come from.
func ServiceCIDRs() *kind.Def {
	return kind.Define(kind.Resource[networkingv1.ServiceCIDR]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "ServiceCIDR"},
			Plural:           "servicecidrs", Scope: kind.Cluster,
			Older: kind.SameLayout("v1beta1"),
		},
		Spec:     func(s *networkingv1.ServiceCIDR) any { return &s.Spec },
		Status:   func(s *networkingv1.ServiceCIDR) any { return &s.Status },
		Validate: validateServiceCIDR,
		Columns: []kind.Column[networkingv1.ServiceCIDR]{
			kind.NameColumn[networkingv1.ServiceCIDR](),
			{Name: "CIDRs", Description: networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"],
				Value: func(s *networkingv1.ServiceCIDR) any { return strings.Join(s.Spec.CIDRs, ",") }},
			kind.AgeColumn[networkingv1.ServiceCIDR](),
		},
		Subs: []kind.Sub[networkingv1.ServiceCIDR]{{
			Name: "status", Reset: []string{"metadata", "spec"},
			Prepare: func(s, old *networkingv1.ServiceCIDR) {
				metav1.ResetObjectMetaForStatus(&s.ObjectMeta, &old.ObjectMeta)
			},
		}},
	})
}

func validateServiceCIDR(s, old *networkingv1.ServiceCIDR) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	if old == nil {
		return validateCIDRs(s.Spec.CIDRs, path)
	}
	var errs field.ErrorList
	now, was := s.Spec.CIDRs, old.Spec.CIDRs
	switch {
	case len(now) == len(was):
		for i := range was {
			if now[i] != was[i] {
				errs = append(errs, field.Invalid(path.Index(i), now[i], validation.FieldImmutableErrorMsg))
			}
		}
	case len(was) == 1 && len(now) == 2: // becoming dual stack is allowed
		if now[0] != was[0] {
			errs = append(errs, field.Invalid(path.Index(0), now[0], validation.FieldImmutableErrorMsg))
		}
		errs = append(errs, validateCIDRs(now, path)...)
	default:
		errs = append(errs, field.Invalid(path, now, validation.FieldImmutableErrorMsg))
	}
	return errs
}

func validateCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	switch {
	case len(cidrs) == 0:
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	case len(cidrs) > 2:
		return field.ErrorList{field.Invalid(path, check.GoFields(networkingv1.ServiceCIDRSpec{CIDRs: cidrs}),
			"may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, utilvalidation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if len(cidrs) == 2 {
		family := netutils.IPFamilyOfCIDRString(cidrs[0])
		if family != netutils.IPFamilyUnknown && family == netutils.IPFamilyOfCIDRString(cidrs[1]) {
			errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
		}
	}
	return errs
}
