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

// Base returns the published environment with limits on what an expression allocates and computes, and on quantities,
// because anybody may have written expressions and the texts that they read. The libraries that evaluate the rules of
// definitions and the selectors of devices take the published environment themselves. Therefore the first call of Base
// replaces it for the whole process, and whoever uses such a library calls Base before.
func Base() *environment.EnvSet { return base() }

var base = sync.OnceValue(func() *environment.EnvSet {
	published := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	bounded, err := bound(published)
	if err != nil {
		panic(fmt.Sprintf("CEL's functions are not the ones this program was written for: %v", err))
	}
	*published = *bounded
	return published
})

// bound adds the limits to an environment.
func bound(published *environment.EnvSet) (*environment.EnvSet, error) {
	always := version.MajorMinor(1, 0)
	quantities, err := published.Extend(environment.VersionedOptions{
		IntroducedVersion: always,
		EnvOptions: []cel.EnvOption{
			cel.Function("quantity", cel.Overload("string_to_quantity", []*cel.Type{cel.StringType}, apicel.QuantityType,
				cel.UnaryBinding(toQuantity))),
			cel.Function("isQuantity", cel.Overload("is_quantity_string", []*cel.Type{cel.StringType}, cel.BoolType,
				cel.UnaryBinding(isQuantity))),
		},
	})
	if err != nil {
		return nil, err
	}
	compile, evaluate, err := limits(quantities.StoredExpressionsEnv()) // it has all functions that the other one has
	if err != nil {
		return nil, err
	}
	return quantities.Extend(environment.VersionedOptions{IntroducedVersion: always, EnvOptions: compile, ProgramOptions: evaluate})
}

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
