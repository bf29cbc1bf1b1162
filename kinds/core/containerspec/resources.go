package containerspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/quantity"
	"proa.dev/kinds/lib/resourcename"
)

// ValidateOverhead checks the resources that running a pod takes besides its containers.
func ValidateOverhead(list corev1.ResourceList, at *field.Path) field.ErrorList {
	return ValidateResources(&corev1.ResourceRequirements{Limits: list}, resourcename.ValidateContainer, nil, at, Allowances{})
}

// ValidateResources checks requests and limits. name checks the names of resources, which differ between containers
// and pods.
func ValidateResources(r *corev1.ResourceRequirements, name func(corev1.ResourceName, *field.Path) field.ErrorList, claims []string,
	at *field.Path, allow Allowances) field.ErrorList {
	var errs field.ErrorList
	limits, requests := at.Child("limits"), at.Child("requests")
	ordinary, huge := false, false
	inspect := func(res corev1.ResourceName, q resource.Quantity, at *field.Path) {
		if resourcename.IsHugePages(res) {
			huge = true
			if !allow.IndivisibleHugePages && !IsWholeHugePages(res, q) {
				errs = append(errs, field.Invalid(at, q.String(),
					fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), res)))
			}
		}
		ordinary = ordinary || res == corev1.ResourceCPU || res == corev1.ResourceMemory
	}
	for _, res := range slices.Sorted(maps.Keys(r.Limits)) {
		q, at := r.Limits[res], limits.Key(string(res))
		errs = append(errs, name(res, at)...)
		errs = append(errs, resourcename.ValidateQuantity(res, q, at)...)
		inspect(res, q, at)
	}
	for _, res := range slices.Sorted(maps.Keys(r.Requests)) {
		q, at := r.Requests[res], requests.Key(string(res))
		errs = append(errs, name(res, at)...)
		errs = append(errs, resourcename.ValidateQuantity(res, q, at)...)
		limit, limited := r.Limits[res]
		switch {
		case limited && q.Cmp(limit) != 0 && !resourcename.CanOvercommit(res):
			errs = append(errs, field.Invalid(requests, q.String(), fmt.Sprintf("must be equal to %s limit of %s", res, limit.String())))
		case limited && q.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, q.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", res, limit.String())))
		case !limited && !resourcename.CanOvercommit(res):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		}
		inspect(res, q, at)
	}
	if huge && !ordinary {
		errs = append(errs, field.Forbidden(at, "HugePages require cpu or memory"))
	}
	return append(errs, validateClaimNames(r.Claims, claims, at.Child("claims"))...)
}

// validateClaimNames checks that a container uses only resource claims that its pod names.
func validateClaimNames(used []corev1.ResourceClaim, claims []string, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range used {
		at := list.Index(i)
		if c.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		key := c.Name
		if seen[key] {
			errs = append(errs, field.Duplicate(at, c.Name))
		} else {
			if c.Request != "" {
				errs = append(errs, check.DNSLabel(c.Request, at.Child("request"))...)
				key += "/" + c.Request
			}
			if seen[key] {
				errs = append(errs, field.Duplicate(at, key))
			} else if c.Request == "" {
				for other := range seen {
					if strings.HasPrefix(other, c.Name+"/") {
						errs = append(errs, field.Duplicate(at, c.Name))
					}
				}
			}
			seen[key] = true
		}
		if !slices.Contains(claims, c.Name) {
			err := field.NotFound(at, c.Name)
			err.Detail = "must be one of the names in pod.spec.resourceClaims"
			if len(claims) == 0 {
				err.Detail += " which is empty"
			} else {
				err.Detail += ": " + strings.Join(claims, ", ")
			}
			errs = append(errs, err)
		}
	}
	return errs
}

// ValidatePodResourceName checks the name of a resource of a whole Pod.
func ValidatePodResourceName(res corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := resourcename.Validate(res, at)
	if len(errs) == 0 && !resourcehelper.IsSupportedPodLevelResource(res) {
		errs = append(errs, field.NotSupported(at, res, slices.Sorted(maps.Keys(resourcehelper.SupportedPodLevelResources()))))
	}
	return errs
}

// IsWholeHugePages reports whether an amount of huge pages is a whole number of pages.
func IsWholeHugePages(res corev1.ResourceName, q resource.Quantity) bool {
	size, err := quantity.Parse(strings.TrimPrefix(string(res), corev1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 {
		return false
	}
	return q.Value()%size.Value() == 0
}
