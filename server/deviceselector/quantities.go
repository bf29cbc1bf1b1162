package deviceselector

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/lru"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/server/celenv"
)

// checkQuantities returns what is wrong with the quantities of an expression. The library evaluates quantity() without
// limits, partly while it compiles, and cannot be interrupted, so that its argument must be known before: a literal, or
// part of the device. An expression that cannot be parsed is left to the compiler.
func checkQuantities(expression string) error {
	reads := celenv.Quantities(expression, "device")
	if reads.Err == nil && reads.Computed {
		return fmt.Errorf("%s() takes a literal or an attribute of the device", reads.Function)
	}
	return reads.Err
}

// check returns why an expression cannot be compiled or evaluated in reasonable time and memory, or nil. The library takes
// the environment that celenv has bounded by then.
func check(expression string) error {
	if err := new(celenv.Checker).Check(expression); err != nil {
		return err
	}
	return checkQuantities(expression)
}

// checkFor returns an error if an expression must not be compiled, or must not read the quantities of a device. It caches
// what is known of the expression.
func checkFor(checked *lru.Cache, expression string, device *resourcev1.Device) error {
	known, ok := checked.Get(expression)
	if !ok {
		known = check(expression)
		checked.Add(expression, known)
	}
	if err, bad := known.(error); bad {
		return err
	}
	if !celenv.MayReadQuantities(expression) {
		return nil
	}
	if name, harmful := harmfulAttribute(device); harmful {
		return fmt.Errorf("attribute %s of device %s: it is a quantity out of bounds", name, device.Name)
	}
	return nil
}

// harmfulAttribute returns the name of an attribute whose text would take minutes to parse as a quantity.
func harmfulAttribute(device *resourcev1.Device) (name string, harmful bool) {
	for name, a := range device.Attributes {
		if a.StringValue != nil && quantity.IsHarmful(*a.StringValue) || slices.ContainsFunc(a.StringValues, quantity.IsHarmful) {
			return string(name), true
		}
	}
	return "", false
}
