package policyadmission

import (
	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"proa.dev/server/celenv"
)

// expression is a CEL expression in the form that the library expects.
type expression struct {
	name    string // of a variable
	text    string
	returns []*celgo.Type
}

func (e *expression) GetName() string { return e.name }

func (e *expression) GetExpression() string { return e.text }

func (e *expression) ReturnTypes() []*celgo.Type { return e.returns }

func boolean(text string) *expression {
	return &expression{text: text, returns: []*celgo.Type{celgo.BoolType}}
}

// newCompiler returns a compiler of expressions that can use a policy's variables.
func newCompiler(variables []admissionv1.Variable, known cel.OptionalVariableDeclarations) (*cel.CompositedCompiler, error) {
	c, err := cel.NewCompositedCompiler(celenv.Base())
	if err != nil {
		return nil, err
	}
	for _, v := range variables {
		e := &expression{name: v.Name, text: v.Expression, returns: []*celgo.Type{celgo.AnyType, celgo.DynType}}
		c.CompileAndStoreVariable(e, known, environment.StoredExpressions)
	}
	return c, nil
}

// compileConditions compiles the match conditions of a policy; nil if there are none.
func compileConditions(
	c *cel.CompositedCompiler, list []admissionv1.MatchCondition, known cel.OptionalVariableDeclarations,
	failure *admissionv1.FailurePolicyType, policy string,
) matchconditions.Matcher {
	if len(list) == 0 {
		return nil
	}
	all := make([]cel.ExpressionAccessor, len(list))
	for i := range list {
		all[i] = (*matchconditions.MatchCondition)(&list[i])
	}
	return matchconditions.NewMatcher(c.CompileCondition(all, known, environment.StoredExpressions), failure, "policy", "validate", policy)
}
