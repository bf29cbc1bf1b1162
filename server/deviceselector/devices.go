// Package deviceselector evaluates the CEL expressions by which claims and classes select devices, with the published
// library. Hop 5 asks it whether an expression is valid, the scheduler whether a device matches. Nothing is compiled
// before it is needed.
package deviceselector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/lru"
)

const (
	// cacheSize is the number of compiled expressions in the cache. One of 10 KiB, with its regular expressions, takes a
	// megabyte.
	cacheSize = 64
	// evaluationTimeout is how long one expression may take for one device. Its cost is limited too; this is for slow
	// machines.
	evaluationTimeout = 10 * time.Second
)

// features returns the features that upstream has on.
func features() cel.Features { return cel.Features{EnableConsumableCapacity: true} }

// Check returns what is wrong with a new expression, or nil.
func Check(path *field.Path, expression string) *field.Error {
	if err := check(expression); err != nil {
		return field.Invalid(path, expression, err.Error())
	}
	kind := environment.NewExpressions
	result := cel.GetCompiler(features()).CompileCELExpression(expression, cel.Options{EnvType: &kind})
	if result.Error == nil {
		if result.MaxCost > resourcev1.CELSelectorExpressionMaxCost {
			return field.Forbidden(path, "too complex, exceeds cost limit")
		}
		return nil
	}
	switch result.Error.Type {
	case apicel.ErrorTypeRequired:
		return field.Required(path, result.Error.Detail)
	case apicel.ErrorTypeInvalid:
		return field.Invalid(path, expression, result.Error.Detail)
	default:
		return field.InternalError(path, result.Error)
	}
}

// Selector returns a function that reports, until ctx ends, whether a device matches an expression. It is safe for
// concurrent use.
func Selector(ctx context.Context) func(expression, driver string, device *resourcev1.Device) (bool, error) {
	compiled := sync.OnceValue(func() *cel.Cache { return cel.NewCache(cacheSize, features()) })
	checked := lru.New(cacheSize)
	return func(expression, driver string, device *resourcev1.Device) (bool, error) {
		if err := checkFor(checked, expression, device); err != nil {
			return false, fmt.Errorf("CEL compile error: %w", err)
		}
		program := compiled().GetOrCompile(expression)
		if program.Error != nil {
			return false, fmt.Errorf("CEL compile error: %w", program.Error)
		}
		ctx, stop := context.WithTimeoutCause(ctx, evaluationTimeout, errors.New("the expression takes too long"))
		defer stop()
		is, _, err := program.DeviceMatches(ctx, cel.Device{
			Driver: driver, AllowMultipleAllocations: device.AllowMultipleAllocations, Attributes: device.Attributes,
			Capacity: device.Capacity,
		})
		if err != nil {
			return false, fmt.Errorf("CEL runtime error: %w", err)
		}
		return is, nil
	}
}
