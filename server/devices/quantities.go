package devices

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/lru"

	"proa.dev/kinds/quantity"
)

// checkQuantities returns what is wrong with the quantities of an expression. The library evaluates quantity() without a bound, some
// of it while it compiles, and cannot be stopped, so that its argument must be known before: a literal, or part of the device. An
// expression that cannot be parsed is for the compiler to refuse.
func checkQuantities(expression string) error {
	if !readsQuantities(expression) {
		return nil
	}
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.StoredExpressions)
	if err != nil {
		return err
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return nil //nolint:nilerr // the compiler refuses it in its own words
	}
	var found error
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || found != nil {
			return
		}
		call := e.AsCall()
		if name := call.FunctionName(); name != "quantity" && name != "isQuantity" || len(call.Args()) != 1 {
			return
		}
		found = checkArgument(call.FunctionName(), call.Args()[0])
	}))
	return found
}

func checkArgument(function string, arg ast.Expr) error {
	if arg.Kind() == ast.LiteralKind {
		text, ok := arg.AsLiteral().Value().(string)
		if !ok {
			return nil
		}
		return quantity.Check(text)
	}
	if !ofDevice(arg) {
		return fmt.Errorf("%s() takes a literal or an attribute of the device", function)
	}
	return nil
}

// ofDevice says that an expression selects something of the device.
func ofDevice(e ast.Expr) bool {
	for {
		switch e.Kind() {
		case ast.SelectKind:
			e = e.AsSelect().Operand()
		case ast.CallKind:
			call := e.AsCall()
			if call.FunctionName() != operators.Index || len(call.Args()) != 2 {
				return false
			}
			e = call.Args()[0]
		case ast.IdentKind:
			return e.AsIdent() == "device"
		default:
			return false
		}
	}
}

// readsQuantities says that an expression may call quantity() or isQuantity().
func readsQuantities(expression string) bool { return strings.Contains(expression, "uantity") }

// mayRead returns an error if an expression must not read the quantities of a device. It keeps what is known of the expression.
func mayRead(checked *lru.Cache, expression string, device *resourcev1.Device) error {
	known, ok := checked.Get(expression)
	if !ok {
		known = checkQuantities(expression)
		checked.Add(expression, known)
	}
	if err, bad := known.(error); bad {
		return err
	}
	if name, harmful := harmfulAttribute(device); harmful {
		return fmt.Errorf("attribute %s of device %s: it is a quantity out of bounds", name, device.Name)
	}
	return nil
}

// harmfulAttribute returns the name of an attribute whose text would take minutes if an expression read it as a quantity.
func harmfulAttribute(device *resourcev1.Device) (name string, harmful bool) {
	for name, a := range device.Attributes {
		if a.StringValue != nil && quantity.Harmful(*a.StringValue) || slices.ContainsFunc(a.StringValues, quantity.Harmful) {
			return string(name), true
		}
	}
	return "", false
}
