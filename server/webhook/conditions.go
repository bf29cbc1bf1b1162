package webhook

import (
	"sync"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"proa.dev/server/celenv"
)

// conditionCompiler returns a function that compiles the match conditions of a webhook when it is first called; nil
// when there are none. They were validated when the configuration was stored, and one that has become invalid since
// then is an error of each evaluation.
type conditionCompiler func(list []admissionregv1.MatchCondition, failure *admissionregv1.FailurePolicyType,
	name string) func() matchconditions.Matcher

func newConditionCompiler() conditionCompiler {
	compiler := sync.OnceValue(func() cel.ConditionCompiler {
		return cel.NewConditionCompiler(celenv.Base())
	})
	return func(list []admissionregv1.MatchCondition, failure *admissionregv1.FailurePolicyType,
		name string) func() matchconditions.Matcher {
		if len(list) == 0 {
			return nil
		}
		return sync.OnceValue(func() matchconditions.Matcher {
			all := make([]cel.ExpressionAccessor, len(list))
			for i := range list {
				all[i] = (*matchconditions.MatchCondition)(&list[i])
			}
			known := cel.OptionalVariableDeclarations{HasAuthorizer: true}
			return matchconditions.NewMatcher(compiler().CompileCondition(all, known, environment.StoredExpressions), failure, "webhook",
				"validating", name)
		})
	}
}
