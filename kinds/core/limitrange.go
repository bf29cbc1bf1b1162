package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
	"proa.dev/kinds/lib/resourcename"
)

// LimitRanges bound, and default, the resources of single pods, containers and claims of a namespace.
func LimitRanges() *kind.Def {
	return kind.Define(kind.Resource[corev1.LimitRange]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "LimitRange"}, Plural: "limitranges", Short: []string{"limits"},
			CreateOnUpdate: true,
		},
		Default: func(l *corev1.LimitRange) {
			for i := range l.Spec.Limits {
				defaultLimit(&l.Spec.Limits[i])
			}
		},
		Prepare: func(l, old *corev1.LimitRange) {
			if old == nil && l.Name == "" && l.GenerateName == "" {
				l.Name = string(uuid.NewUUID())
			}
		},
		Validate: validateLimitRange,
	})
}

// defaultLimit completes the limits of containers: the default is the maximum, and the default request
// the default, or else the minimum.
func defaultLimit(l *corev1.LimitRangeItem) {
	if l.Type == corev1.LimitTypeContainer {
		fill := func(list *corev1.ResourceList, from corev1.ResourceList) {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			for name, q := range from {
				if _, ok := (*list)[name]; !ok {
					(*list)[name] = q.DeepCopy()
				}
			}
		}
		fill(&l.Default, l.Max)
		fill(&l.DefaultRequest, l.Default)
		fill(&l.DefaultRequest, l.Min)
	}
	for _, list := range []corev1.ResourceList{l.Max, l.Min, l.Default, l.DefaultRequest, l.MaxLimitRequestRatio} {
		defaulting.RoundUp(list)
	}
}

func validateLimitRange(l, _ *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.LimitType]bool{}
	for i := range l.Spec.Limits {
		item, path := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateLimitType(item.Type, path.Child("type"))...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(path.Child("type"), item.Type))
		}
		seen[item.Type] = true
		errs = append(errs, validateLimit(item, path)...)
	}
	return errs
}

func validateLimitType(t corev1.LimitType, path *field.Path) field.ErrorList {
	if errs := check.Messages(t, path, validation.IsQualifiedName(string(t))); len(errs) > 0 {
		return errs
	}
	known := []corev1.LimitType{corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim}
	if !strings.Contains(string(t), "/") && !slices.Contains(known, t) {
		return field.ErrorList{field.Invalid(path, t, "must be a standard limit type or fully qualified")}
	}
	return nil
}

func validateLimit(l *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[corev1.ResourceName]bool{}
	gather := func(child string, list corev1.ResourceList) {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			names[name] = true
			at := path.Child(child).Key(string(name))
			if l.Type == corev1.LimitTypePod || l.Type == corev1.LimitTypeContainer {
				errs = append(errs, resourcename.ValidateContainer(name, at)...)
			} else {
				errs = append(errs, resourcename.Validate(name, at)...)
			}
		}
	}
	gather("max", l.Max)
	gather("min", l.Min)
	defaults, requests := l.Default, l.DefaultRequest
	if l.Type == corev1.LimitTypePod {
		const text = "may not be specified when `type` is 'Pod'"
		if len(l.Default) > 0 {
			errs = append(errs, field.Forbidden(path.Child("default"), text))
		}
		if len(l.DefaultRequest) > 0 {
			errs = append(errs, field.Forbidden(path.Child("defaultRequest"), text))
		}
		defaults, requests = nil, nil
	} else {
		gather("default", l.Default)
		gather("defaultRequest", l.DefaultRequest)
	}
	if l.Type == corev1.LimitTypePersistentVolumeClaim {
		_, hasMin := l.Min[corev1.ResourceStorage]
		_, hasMax := l.Max[corev1.ResourceStorage]
		if !hasMin && !hasMax {
			errs = append(errs, field.Required(path.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	gather("maxLimitRequestRatio", l.MaxLimitRequestRatio)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		errs = append(errs, compareLimits(l, defaults, requests, name, path)...)
	}
	return errs
}

// compareLimits checks the values of one resource against each other.
func compareLimits(l *corev1.LimitRangeItem, defaults, requests corev1.ResourceList, name corev1.ResourceName,
	path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := func(list corev1.ResourceList) *resource.Quantity {
		if q, ok := list[name]; ok {
			return &q
		}
		return nil
	}
	low, high, def, request, ratio := at(l.Min), at(l.Max), at(defaults), at(requests), at(l.MaxLimitRequestRatio)
	// ordered wants a <= b, where both are given, and blames the child.
	ordered := func(child string, a, b, bad *resource.Quantity, aText, bText string) {
		if a != nil && b != nil && a.Cmp(*b) > 0 {
			errs = append(errs, field.Invalid(path.Child(child).Key(string(name)), *bad,
				fmt.Sprintf("%s value %s is greater than %s value %s", aText, a, bText, b)))
		}
	}
	ordered("min", low, high, low, "min", "max")
	ordered("defaultRequest", low, request, request, "min", "default request")
	ordered("defaultRequest", request, high, request, "default request", "max")
	ordered("defaultRequest", request, def, request, "default request", "default limit")
	ordered("default", low, def, low, "min", "default")
	ordered("default", def, high, high, "default", "max")
	if ratio != nil {
		errs = append(errs, validateLimitRatio(ratio, low, high, path.Child("maxLimitRequestRatio").Key(string(name)))...)
	}
	if (!resourcename.IsNative(name) || resourcename.IsHugePages(name)) && def != nil && request != nil && def.Cmp(*request) != 0 {
		errs = append(errs, field.Invalid(path.Child("defaultRequest").Key(string(name)), *request,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", def, request, name)))
	}
	return errs
}

func validateLimitRatio(ratio, low, high *resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(path, *ratio, fmt.Sprintf("ratio %s is less than 1", ratio)))
	}
	if low == nil || high == nil {
		return errs
	}
	r, a, b := float64(ratio.Value()), low.Value(), high.Value()
	if ratio.Value() < resource.MaxMilliValue && a < resource.MaxMilliValue && b < resource.MaxMilliValue {
		r, a, b = float64(ratio.MilliValue())/1000, low.MilliValue(), high.MilliValue()
	}
	if most := float64(b) / float64(a); r > most {
		errs = append(errs, field.Invalid(path, *ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio, most)))
	}
	return errs
}
