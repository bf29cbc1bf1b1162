package resource

import (
	"fmt"
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const maxOptions = 10

// validateCapacity checks the capacity of a device and how requests may share it.
func validateCapacity(c resourcev1.DeviceCapacity, shared bool, path *field.Path) field.ErrorList {
	p, at := c.RequestPolicy, path.Child("requestPolicy")
	switch {
	case p == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(at, "allowMultipleAllocations must be true")}
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(p.ValidValues) > 0 && p.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validValues is defined")}
	case len(p.ValidValues) > 0:
		return validateOptions(*p.Default, c.Value, p.ValidValues, at.Child("validValues"))
	case p.ValidRange != nil && p.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validRange is defined")}
	case p.ValidRange != nil:
		return validateRange(*p.Default, c.Value, p.ValidRange, at.Child("validRange"))
	}
	return nil
}

func validateOptions(standard, most resource.Quantity, options []resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := 1; i < len(options); i++ {
		if options[i-1].Cmp(options[i]) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), options[i].String(), "values must be sorted in ascending order"))
		}
	}
	found := false
	errs = append(errs, validateDistinct(options, maxOptions, path, func(q *resource.Quantity) string { return q.AsDec().String() },
		func(q *resource.Quantity, at *field.Path) field.ErrorList {
			found = found || q.Cmp(standard) == 0
			if q.Cmp(most) > 0 {
				return field.ErrorList{field.Invalid(at, q.String(),
					fmt.Sprintf("option is larger than capacity value: %s", most.String()))}
			}
			return nil
		})...)
	if !found {
		errs = append(errs, field.Invalid(path, standard.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

func validateRange(standard, most resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, path *field.Path) field.ErrorList {
	if r.Min == nil {
		return field.ErrorList{field.Required(path.Child("min"), "required when validRange is defined")}
	}
	var errs field.ErrorList
	bad := func(name string, q *resource.Quantity, format string, limit *resource.Quantity) {
		errs = append(errs, field.Invalid(path.Child(name), q.String(), fmt.Sprintf(format, limit.String())))
	}
	if r.Min.Cmp(most) > 0 {
		bad("min", r.Min, "min is larger than capacity value: %s", &most)
	}
	if standard.Cmp(*r.Min) < 0 {
		bad("default", &standard, "default is less than min: %s", r.Min)
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			bad("max", r.Min, "min is larger than max: %s", r.Max)
		}
		if r.Max.Cmp(most) > 0 {
			bad("max", r.Max, "max is larger than capacity value: %s", &most)
		}
		if standard.Cmp(*r.Max) > 0 {
			bad("default", &standard, "default is more than max: %s", r.Max)
		}
	}
	if r.Step == nil {
		return errs
	}
	if r.Step.Sign() <= 0 {
		return append(errs, field.Invalid(path.Child("step"), r.Step.String(), "must be greater than zero"))
	}
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	if first.Cmp(most) > 0 {
		errs = append(errs, field.Invalid(path.Child("step"), r.Step.String(),
			fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), most.String())))
	}
	if flaws := validateBounds(standard, r, path); len(flaws) > 0 {
		return append(errs, flaws...)
	}
	for _, q := range []*resource.Quantity{&standard, r.Max} {
		if q != nil && (q.Value()-r.Min.Value())%r.Step.Value() != 0 {
			errs = append(errs, field.Invalid(path.Child("step"), q.String(),
				fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
	return errs
}

// validateBounds refuses quantities that are too large to compute with.
func validateBounds(standard resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, b := range []struct {
		q    *resource.Quantity
		name string
	}{{&standard, "default"}, {r.Min, "min"}, {r.Max, "max"}, {r.Step, "step"}} {
		switch {
		case b.q == nil:
		case b.q.Sign() < 0:
			errs = append(errs, field.Invalid(path.Child(b.name), b.q.String(), apivalidation.IsNegativeErrorMsg))
		case b.q.CmpInt64(math.MaxInt64) > 0:
			errs = append(errs, field.Invalid(path.Child(b.name), b.q.String(), "must not be larger than 9223372036854775807"))
		}
	}
	return errs
}
