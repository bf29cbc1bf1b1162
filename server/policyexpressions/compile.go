// Package policyexpressions validates the CEL expressions of admission policies and webhooks, with the published
// library: hop 5 asks it whether an expression is valid, and the controller that writes the status of policies whether
// it fits the types of the objects that it will see. It is not part of the kinds because the library links CEL, which
// only the server may do. Nothing is compiled before there is an expression.
package policyexpressions

import (
	"cmp"
	"fmt"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"proa.dev/kinds/admissionregistration"
	"proa.dev/server/celenv"
)

// Compiler returns a function that starts the validation of one object's expressions, in the form that the kinds
// expect. An expression that cannot use variables is compiled in an environment that all objects share.
func Compiler() func(composed bool) func(*field.Path, admissionregistration.Expression) *field.Error {
	shared := sync.OnceValue(func() cel.Compiler { return cel.NewCompiler(base()) })
	return func(composed bool) func(*field.Path, admissionregistration.Expression) *field.Error {
		var checker celenv.Checker
		if !composed {
			return func(path *field.Path, e admissionregistration.Expression) *field.Error {
				if err := check(&checker, path, e); err != nil {
					return err
				}
				return compile(shared(), path, e)
			}
		}
		own := sync.OnceValues(func() (*cel.CompositedCompiler, error) { return cel.NewCompositedCompiler(base()) })
		return func(path *field.Path, e admissionregistration.Expression) *field.Error {
			if err := check(&checker, path, e); err != nil {
				return err
			}
			c, err := own()
			if err != nil {
				return field.InternalError(path, err)
			}
			return compile(c, path, e)
		}
	}
}

// check returns why an expression cannot be compiled in reasonable time, or nil.
func check(c *celenv.Checker, path *field.Path, e admissionregistration.Expression) *field.Error {
	err := c.CheckVariable(e.Name, e.Text)
	if err == nil {
		return nil
	}
	return field.Invalid(path, cmp.Or(e.Show, e.Text), err.Error())
}

func base() *environment.EnvSet {
	return celenv.Base()
}

// compile returns what is wrong with an expression, or nil.
func compile(c cel.Compiler, path *field.Path, e admissionregistration.Expression) *field.Error {
	known := environment.NewExpressions
	if e.Stored {
		known = environment.StoredExpressions
	}
	names := cel.OptionalVariableDeclarations{HasParams: e.Params, HasAuthorizer: e.Authorizer}
	switch e.Use {
	case admissionregistration.Variable:
		composed, ok := c.(*cel.CompositedCompiler)
		if !ok {
			return field.InternalError(path, fmt.Errorf("variable composition is not allowed"))
		}
		return fieldError(path, e, composed.CompileAndStoreVariable(expression(e), names, known).Error)
	case admissionregistration.Configuration, admissionregistration.Patch:
		names.HasPatchTypes = true
	case admissionregistration.Match, admissionregistration.Validation, admissionregistration.Message, admissionregistration.Audit:
	}
	return fieldError(path, e, c.CompileCELExpression(expression(e), names, known).Error)
}

func fieldError(path *field.Path, e admissionregistration.Expression, err *apicel.Error) *field.Error {
	switch {
	case err == nil:
		return nil
	case err.Type == apicel.ErrorTypeRequired:
		return field.Required(path, err.Detail)
	case err.Type == apicel.ErrorTypeInvalid:
		return field.Invalid(path, e.Show, err.Detail)
	}
	return field.InternalError(path, err)
}

// expression is an expression in the form that the library expects.
type expression admissionregistration.Expression

func (e expression) GetExpression() string { return e.Text }

func (e expression) GetName() string { return e.Name }

// ReturnTypes returns the types that the result may have.
func (e expression) ReturnTypes() []*celgo.Type {
	switch e.Use {
	case admissionregistration.Match, admissionregistration.Validation:
		return []*celgo.Type{celgo.BoolType}
	case admissionregistration.Message:
		return []*celgo.Type{celgo.StringType}
	case admissionregistration.Audit:
		return []*celgo.Type{celgo.StringType, celgo.NullType}
	case admissionregistration.Configuration:
		return []*celgo.Type{celgo.ObjectType("Object")}
	case admissionregistration.Patch:
		return []*celgo.Type{celgo.ListType(celgo.ObjectType("JSONPatch"))}
	case admissionregistration.Variable:
	}
	return []*celgo.Type{celgo.AnyType, celgo.DynType}
}
