package policyadmission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	celgo "github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	admissionrequest "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionmatch"
)

// validation is a compiled ValidatingAdmissionPolicy.
type validation struct {
	spec        *admissionv1.ValidatingAdmissionPolicySpec
	failure     admissionv1.FailurePolicyType
	conditions  matchconditions.Matcher // nil: every write
	validations cel.ConditionEvaluator
	messages    cel.ConditionEvaluator // nil: no validation has a messageExpression
	annotations cel.ConditionEvaluator // nil: none
	err         error                  // why the policy cannot be evaluated at all
}

func readValidatingPolicy(o kind.Object) *policy[*validation] {
	p, ok := o.(*admissionv1.ValidatingAdmissionPolicy)
	if !ok {
		return nil
	}
	return &policy[*validation]{
		revision: revisionOf(&p.ObjectMeta), name: p.Name, paramKind: p.Spec.ParamKind,
		criteria: admissionmatch.ForPolicy(p.Spec.MatchConstraints),
		failure:  failurePolicy(p.Spec.FailurePolicy), program: sync.OnceValue(func() *validation { return compileValidation(p) }),
	}
}

func readValidatingBinding(o kind.Object) *binding {
	b, ok := o.(*admissionv1.ValidatingAdmissionPolicyBinding)
	if !ok {
		return nil
	}
	return &binding{
		name: b.Name, policy: b.Spec.PolicyName, criteria: criteriaOf(b.Spec.MatchResources), params: b.Spec.ParamRef,
		actions: b.Spec.ValidationActions,
	}
}

// compileValidation compiles all expressions of a policy. An invalid one is an error when it is evaluated.
func compileValidation(p *admissionv1.ValidatingAdmissionPolicy) *validation {
	s := &p.Spec
	v := &validation{spec: s, failure: failurePolicy(s.FailurePolicy)}
	all := cel.OptionalVariableDeclarations{HasParams: s.ParamKind != nil, HasAuthorizer: true}
	some := cel.OptionalVariableDeclarations{HasParams: s.ParamKind != nil}
	c, err := newCompiler(s.Variables, all)
	if err != nil {
		v.err = err
		return v
	}
	v.conditions = compileConditions(c, s.MatchConditions, all, s.FailurePolicy, p.Name)
	validations, messages := make([]cel.ExpressionAccessor, len(s.Validations)), make([]cel.ExpressionAccessor, len(s.Validations))
	explained := false
	for i, one := range s.Validations {
		validations[i] = boolean(one.Expression)
		if one.MessageExpression != "" {
			messages[i], explained = &expression{text: one.MessageExpression, returns: []*celgo.Type{celgo.StringType}}, true
		}
	}
	v.validations = c.CompileCondition(validations, all, environment.StoredExpressions)
	if explained {
		v.messages = c.CompileCondition(messages, some, environment.StoredExpressions)
	}
	if len(s.AuditAnnotations) > 0 {
		values := make([]cel.ExpressionAccessor, len(s.AuditAnnotations))
		for i, one := range s.AuditAnnotations {
			values[i] = &expression{text: one.ValueExpression, returns: []*celgo.Type{celgo.StringType, celgo.NullType}}
		}
		v.annotations = c.CompileCondition(values, all, environment.StoredExpressions)
	}
	return v
}

// input is what a policy is evaluated with.
type input struct {
	resource   schema.GroupVersionResource // as the policy has matched it
	object     *admission.VersionedAttributes
	params     runtime.Object // nil for none
	namespace  *corev1.Namespace
	authorizer authorizer.UnconditionalAuthorizer
}

// decision is the result of one validation.
type decision struct {
	denied  bool
	failed  bool // by an error, not by the value of the expression
	message string
	reason  metav1.StatusReason
	elapsed time.Duration
}

// annotation is the result of one audit annotation: a value, an error, or neither.
type annotation struct {
	key, value, fault string
	elapsed           time.Duration
}

// fail returns the decision for an error.
func (v *validation) fail(err error) decision {
	return decision{denied: v.failure != admissionv1.Ignore, failed: true, message: err.Error()}
}

// evaluate evaluates the policy for a write.
func (v *validation) evaluate(ctx context.Context, in input) ([]decision, []annotation) {
	if v.err != nil {
		return []decision{v.fail(v.err)}, nil
	}
	if v.conditions != nil {
		m := v.conditions.Match(ctx, in.object, in.params, in.authorizer)
		if m.Error != nil {
			return []decision{v.fail(m.Error)}, nil
		}
		if !m.Matches {
			return nil, nil
		}
	}
	asked := cel.CreateAdmissionRequest(
		in.object.Attributes, metav1.GroupVersionResource(in.resource), metav1.GroupVersionKind(in.object.VersionedKind))
	namespace := cel.CreateNamespaceObject(in.namespace)
	all := cel.OptionalVariableBindings{VersionedParams: in.params, Authorizer: in.authorizer}
	results, left, err := v.validations.ForInput(ctx, in.object, asked, all, namespace, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return []decision{v.fail(err)}, nil
	}
	var messages []cel.EvaluationResult
	if v.messages != nil {
		messages, _, err = v.messages.ForInput(ctx, in.object, asked, cel.OptionalVariableBindings{VersionedParams: in.params}, namespace,
			left)
	}
	decisions := make([]decision, len(results))
	for i := range results {
		var message *cel.EvaluationResult
		if i < len(messages) {
			message = &messages[i]
		}
		decisions[i] = v.decide(&v.spec.Validations[i], &results[i], message, err)
	}
	annotations, err := v.annotate(ctx, in, asked)
	if err != nil {
		return []decision{v.fail(err)}, nil
	}
	return decisions, annotations
}

// decide returns the decision for the result of a validation. messages is the error of evaluating the message
// expressions together.
func (v *validation) decide(one *admissionv1.Validation, result, message *cel.EvaluationResult, messages error) decision {
	var d decision
	switch {
	case result.Error != nil:
		d = v.fail(result.Error)
	case errors.Is(messages, apicel.ErrInternal) || errors.Is(messages, apicel.ErrOutOfBudget):
		d = v.fail(fmt.Errorf("failed messageExpression: %w", messages))
	case result.EvalResult != celtypes.True:
		d = decision{denied: true, message: explain(one, message), reason: metav1.StatusReasonInvalid}
		if one.Reason != nil {
			d.reason = *one.Reason
		}
	}
	d.elapsed = result.Elapsed
	return d
}

// explain returns the text of a denial: the value of the message expression if it is suitable, or else the message, or
// else the expression that was not true.
func explain(one *admissionv1.Validation, message *cel.EvaluationResult) string {
	if message != nil && message.Error == nil && message.EvalResult != nil {
		text, _ := message.EvalResult.Value().(string)
		text = strings.TrimSpace(text)
		if text != "" && len(text) <= celconfig.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(text, "\n") {
			return text
		}
	}
	return cmp.Or(strings.TrimSpace(one.Message), "failed expression: "+strings.TrimSpace(one.Expression))
}

// annotate evaluates the audit annotations of a policy.
func (v *validation) annotate(ctx context.Context, in input, asked *admissionrequest.AdmissionRequest) ([]annotation, error) {
	if v.annotations == nil {
		return nil, nil
	}
	params := cel.OptionalVariableBindings{VersionedParams: in.params}
	results, _, err := v.annotations.ForInput(ctx, in.object, asked, params, in.namespace, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, err
	}
	out := make([]annotation, len(results))
	for i := range results {
		out[i] = v.annotationOf(&v.spec.AuditAnnotations[i], &results[i])
	}
	return out, nil
}

func (v *validation) annotationOf(one *admissionv1.AuditAnnotation, result *cel.EvaluationResult) annotation {
	a := annotation{key: one.Key, elapsed: result.Elapsed}
	switch {
	case result.Error != nil:
		if v.failure != admissionv1.Ignore {
			a.fault = result.Error.Error()
		}
	case result.EvalResult.Type() == celtypes.StringType:
		text, _ := result.EvalResult.Value().(string)
		a.value = strings.TrimSpace(text)
	case result.EvalResult.Type() != celtypes.NullType:
		const text = "valueExpression '%v' resulted in unsupported return type: %v. Return type must be either string or null."
		a.fault = fmt.Sprintf(text, one.ValueExpression, result.EvalResult.Type())
	}
	return a
}
