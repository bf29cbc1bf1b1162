package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// The limits of resolvers in C libraries.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

func validateDNSConfig(c *corev1.PodDNSConfig, policy corev1.DNSPolicy, at *field.Path) field.ErrorList {
	if policy == corev1.DNSNone {
		if c == nil {
			return field.ErrorList{field.Required(at, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", policy))}
		}
		if len(c.Nameservers) == 0 {
			return field.ErrorList{field.Required(at.Child("nameservers"),
				fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", policy))}
		}
	}
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	if len(c.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(at.Child("nameservers"), c.Nameservers,
			fmt.Sprintf("must not have more than %v nameservers", maxNameservers)))
	}
	for i, ip := range c.Nameservers {
		errs = append(errs, check.IP(ip, at.Child("nameservers").Index(i), nil)...)
	}
	searches := at.Child("searches")
	if len(c.Searches) > maxSearches {
		errs = append(errs, field.Invalid(searches, c.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearches)))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchLength {
		errs = append(errs, field.Invalid(searches, c.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength)))
	}
	for i, domain := range c.Searches {
		if domain != "." {
			domain = strings.TrimSuffix(domain, ".")
			errs = append(errs, check.Messages(domain, searches.Index(i), validation.IsDNS1123SubdomainWithUnderscore(domain))...)
		}
	}
	for i, option := range c.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}
