package servicekind

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/lib/check"
)

func policyOf(s *corev1.Service) corev1.IPFamilyPolicy { return ptr.Deref(s.Spec.IPFamilyPolicy, "") }

// validateClusterIPs checks the cluster IPs of a service, their families and the family policy against each other.
func validateClusterIPs(s, old *corev1.Service) field.ErrorList {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var errs field.ErrorList
	ips, families := field.NewPath("spec", "clusterIPs"), field.NewPath("spec", "ipFamilies")
	list := s.Spec.ClusterIPs
	switch {
	case s.Spec.ClusterIP == "":
		if len(list) > 0 {
			errs = append(errs, field.Invalid(ips, list, "must be empty when `clusterIP` is not specified"))
		}
	case len(list) == 0:
		errs = append(errs, field.Required(ips, ""))
	case list[0] != s.Spec.ClusterIP:
		errs = append(errs, field.Invalid(ips, list, "first value must match `clusterIP`"))
	}
	for i, f := range s.Spec.IPFamilies {
		errs = append(errs, check.OneOf(f, families.Index(i), corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if slices.Contains(s.Spec.IPFamilies[:i], f) {
			errs = append(errs, field.Duplicate(families.Index(i), f))
		}
	}
	errs = append(errs, check.OneOfIfSet(s.Spec.IPFamilyPolicy, field.NewPath("spec", "ipFamilyPolicy"),
		corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	var had []string
	if old != nil {
		had = old.Spec.ClusterIPs
	}
	bad := false
	for i, ip := range list {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(list) > 1 {
				bad = true
				errs = append(errs, field.Invalid(ips, list, "'None' must be the first and only value"))
			}
			continue
		}
		wrong := check.IP(ip, ips.Index(i), had)
		bad = bad || len(wrong) > 0
		errs = append(errs, wrong...)
	}
	if len(list) > 2 {
		errs = append(errs, field.Invalid(ips, list, "may only hold up to 2 values"))
	}
	if bad {
		return errs
	}
	return append(errs, validateAddressFamilies(s, ips)...)
}

func validateAddressFamilies(s *corev1.Service, ips *field.Path) field.ErrorList {
	var errs field.ErrorList
	list := s.Spec.ClusterIPs
	if len(list) > 1 {
		both, err := netutils.IsDualStackIPStrings(list)
		if err != nil {
			errs = append(errs, field.InternalError(ips, fmt.Errorf("failed to check for dual stack with error:%w", err)))
		}
		if !both {
			errs = append(errs, field.Invalid(ips, list, "may specify no more than one IP for each IP family"))
		}
	}
	if isHeadless(s) {
		return errs
	}
	for i, ip := range list {
		if i >= len(s.Spec.IPFamilies) {
			break
		}
		if f := s.Spec.IPFamilies[i]; (f == corev1.IPv4Protocol || f == corev1.IPv6Protocol) && f != familyOf(ip) {
			errs = append(errs, field.Invalid(ips.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", f, i)))
		}
	}
	return errs
}

// validateClusterIPChange allows adding and removing a second address, but not changing the first.
func validateClusterIPChange(s, old *corev1.Service) field.ErrorList {
	if !hasAddress(s) || !hasAddress(old) || isHeadless(s) && isHeadless(old) {
		return nil
	}
	var errs field.ErrorList
	path, now, was := field.NewPath("spec", "clusterIPs"), s.Spec.ClusterIPs, old.Spec.ClusterIPs
	const text = "may not change once set"
	switch {
	case len(now) == len(was):
		for i := range was {
			if was[i] != now[i] {
				errs = append(errs, field.Invalid(path.Index(i), now, text))
			}
		}
	case len(now) < len(was):
		if len(now) == 0 {
			return append(errs, field.Invalid(path.Index(0), now, "primary clusterIP can not be unset"))
		}
		if now[0] != was[0] {
			errs = append(errs, field.Invalid(path.Index(0), now, text))
		}
		if len(now) == 1 && policyOf(s) != corev1.IPFamilyPolicySingleStack {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
				"must be set to 'SingleStack' when releasing the secondary clusterIP"))
		}
	case len(was) > 0 && now[0] != was[0]:
		errs = append(errs, field.Invalid(path.Index(0), now, text))
	}
	return errs
}

// validateFamilyChange allows adding and removing a second family, but not changing the first. Headless services may change
// theirs.
func validateFamilyChange(s, old *corev1.Service) field.ErrorList {
	if !hasAddress(s) || !hasAddress(old) || isHeadless(s) || isHeadless(old) {
		return nil
	}
	var errs field.ErrorList
	first, now, was := field.NewPath("spec", "ipFamilies").Index(0), s.Spec.IPFamilies, old.Spec.IPFamilies
	const text = "may not change once set"
	switch {
	case len(now) == len(was):
		for i := range was {
			if was[i] != now[i] {
				errs = append(errs, field.Invalid(first, now, text))
			}
		}
	case len(now) == 0:
		// Families that the client leaves out are set when the service is written.
	case len(now) < len(was):
		if now[0] != was[0] {
			errs = append(errs, field.Invalid(first, s.Spec.ClusterIPs, text))
		}
		if len(now) == 1 && policyOf(s) != corev1.IPFamilyPolicySingleStack {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
				"must be set to 'SingleStack' when releasing the secondary ipFamily"))
		}
	case len(was) > 0 && now[0] != was[0]:
		errs = append(errs, field.Invalid(first, s.Spec.ClusterIPs, text))
	}
	return errs
}

// keepsPreference reports whether a service had and has the policy PreferDualStack with the same addresses: then
// nothing is allocated or released, even if the cluster has since gained or lost a family.
func keepsPreference(s, old *corev1.Service) bool {
	return old != nil && s.Spec.IPFamilyPolicy != nil && old.Spec.Type == s.Spec.Type && hasAddress(s) &&
		policyOf(s) == corev1.IPFamilyPolicyPreferDualStack &&
		(old.Spec.IPFamilyPolicy == nil || policyOf(old) == corev1.IPFamilyPolicyPreferDualStack) &&
		slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

// completePolicy sets the family policy if the client left it out: the old one, or SingleStack, or RequireDualStack
// for a headless service without a selector.
func completePolicy(s, old *corev1.Service) {
	if s.Spec.IPFamilyPolicy != nil {
		return
	}
	policy := corev1.IPFamilyPolicySingleStack
	switch {
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		policy = *old.Spec.IPFamilyPolicy
	case s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0:
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	s.Spec.IPFamilyPolicy = &policy
}

// validatePolicy checks the family policy against addresses and families. A change to SingleStack drops the second
// address and family if the client did not change them.
func validatePolicy(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path, single := field.NewPath("spec", "ipFamilyPolicy"), policyOf(s) == corev1.IPFamilyPolicySingleStack
	spec := &s.Spec
	if old != nil {
		if single {
			if slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) && len(spec.ClusterIPs) > 1 {
				spec.ClusterIPs = spec.ClusterIPs[:1]
			}
			if slices.Equal(spec.IPFamilies, old.Spec.IPFamilies) && len(spec.IPFamilies) > 1 {
				spec.IPFamilies = spec.IPFamilies[:1]
			}
		} else {
			if n := len(spec.ClusterIPs); n > 0 && n < len(old.Spec.ClusterIPs) {
				errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
			}
			if n := len(spec.IPFamilies); n > 0 && n < len(old.Spec.IPFamilies) {
				errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
			}
		}
	}
	if single && len(spec.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if single && len(spec.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	return errs
}

// completeFamilies completes the policy and the families of a service for a cluster that has these families, the
// default one first.
func completeFamilies(s, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	if !hasAddress(s) || keepsPreference(s, old) {
		return nil
	}
	completePolicy(s, old)
	if errs := validateClusterIPs(s, old); len(errs) > 0 {
		return errs
	}
	errs := validatePolicy(s, old)
	spec := &s.Spec
	for i, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone || i < len(spec.IPFamilies) {
			continue
		}
		if f := familyOf(ip); slices.Contains(cluster, f) {
			spec.IPFamilies = append(spec.IPFamilies, f)
		} else {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), spec.ClusterIPs,
				fmt.Sprintf("%s is not configured on this cluster", f)))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	wantsTwo := policyOf(s) != corev1.IPFamilyPolicySingleStack
	if spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0 {
		// The endpoints of such a service may be of families that the cluster itself does not have.
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = []corev1.IPFamily{cluster[0]}
		}
		if len(spec.IPFamilies) == 1 && wantsTwo {
			spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
		}
		return nil
	}
	if policyOf(s) == corev1.IPFamilyPolicyRequireDualStack && len(cluster) < 2 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), spec.IPFamilyPolicy,
			"this cluster is not configured for dual-stack services"))
	}
	for i, f := range spec.IPFamilies {
		if !slices.Contains(cluster, f) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), f, "not configured on this cluster"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{cluster[0]}
	}
	if wantsTwo && len(spec.IPFamilies) == 1 && len(cluster) == 2 {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}
