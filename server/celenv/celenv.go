// Package celenv provides the environment in which CEL expressions of policies, webhooks, authorizers and
// authenticators are compiled.
package celenv

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"proa.dev/kinds/lib/quantity"
)

// Base returns the published environment with limits on quantities, because anybody may have written the texts that
// expressions parse as quantities.
func Base() *environment.EnvSet { return base() }

var base = sync.OnceValue(func() *environment.EnvSet {
	published := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	bounded, err := published.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Function("quantity", cel.Overload("string_to_quantity", []*cel.Type{cel.StringType}, apicel.QuantityType,
				cel.UnaryBinding(toQuantity))),
			cel.Function("isQuantity", cel.Overload("is_quantity_string", []*cel.Type{cel.StringType}, cel.BoolType,
				cel.UnaryBinding(isQuantity))),
		},
	})
	if err != nil {
		panic(fmt.Sprintf("CEL's functions for quantities are not the ones this program was written for: %v", err))
	}
	return bounded
})

func toQuantity(arg ref.Val) ref.Val {
	text, ok := arg.Value().(string)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	q, err := quantity.Parse(text)
	if err != nil {
		return types.WrapErr(err)
	}
	return apicel.Quantity{Quantity: &q}
}

func isQuantity(arg ref.Val) ref.Val {
	text, ok := arg.Value().(string)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	_, err := quantity.Parse(text)
	return types.Bool(err == nil)
}
