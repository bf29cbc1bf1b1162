package policyadmission

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/registrations"
)

// mutatingPlugin is the plugin of hop 4.
type mutatingPlugin struct {
	Config
	policies registrations.Index[[]*policy[*mutation]]
}

func (m *mutatingPlugin) admit(ctx context.Context, a *kind.Admission) error {
	active, err := m.policies.Current(ctx)
	if err != nil && !isExempt(a) {
		return err
	}
	if len(active) == 0 || a.Verb == "delete" || isExempt(a) {
		return nil
	}
	c := &mutatingRun{Config: m.Config, request: newRequest(a, m.Authorizer)}
	for _, p := range active {
		c.collect(ctx, p)
	}
	if len(c.invocations) > 0 {
		if err := c.run(ctx); err != nil {
			return err
		}
	}
	return c.finish()
}

// mutatingRun evaluates all MutatingAdmissionPolicies for a write.
type mutatingRun struct {
	Config
	request     *request
	invocations []invocation
	errs        []policyError
}

// invocation is one evaluation of a policy: under one binding, with one parameter. All of them are known before the
// first one runs, so that the changes of a policy do not decide which policies match.
type invocation struct {
	policy  *policy[*mutation]
	binding *binding
	target  target
	params  runtime.Object
}

// policyError is an error of a policy.
type policyError struct {
	policy  *policy[*mutation]
	binding *binding // nil: the policy itself cannot be used
	err     error
	reason  metav1.StatusReason
}

func (f *policyError) Error() string {
	if f.binding == nil {
		return fmt.Sprintf("policy %q denied request: %v", f.policy.name, f.err)
	}
	return fmt.Sprintf("policy '%s' with binding '%s' denied request: %v", f.policy.name, f.binding.name, f.err)
}

func (c *mutatingRun) addConfigError(p *policy[*mutation], b *binding, err error) {
	what := "policy"
	if b != nil {
		what = "binding"
	}
	c.errs = append(c.errs, policyError{policy: p, binding: b, err: fmt.Errorf("failed to configure %s: %w", what, err)})
}

// collect adds the invocations of one policy, if it matches.
func (c *mutatingRun) collect(ctx context.Context, p *policy[*mutation]) {
	matched, err := p.criteria.Matches(ctx, c.request.Admission)
	if err == nil && matched == nil {
		return
	}
	var def *kind.Def
	if err == nil {
		def, err = paramDef(c.request.Admission, p.paramKind)
	}
	if err != nil {
		c.addConfigError(p, nil, err)
		return
	}
	at := c.request.targetOf(matched)
	for _, b := range p.bindings {
		params, err := c.request.paramsFor(ctx, def, b)
		if err != nil {
			c.addConfigError(p, b, err)
			continue
		}
		for _, one := range params {
			c.invocations = append(c.invocations, invocation{policy: p, binding: b, target: at, params: one})
		}
	}
}

// run evaluates all invocations, one after the other on the same object.
func (c *mutatingRun) run(ctx context.Context) error {
	past := historyOf(c.request.Reinvocation)
	past.begin(c.request.Object)
	defer func() { past.end(c.request.Object) }()
	namespace, err := c.request.namespaceObject(ctx)
	if err != nil {
		return err
	}
	changed := false
	for i := range c.invocations {
		one := &c.invocations[i]
		in := input{resource: one.target.resource, params: one.params, namespace: namespace, authorizer: c.request.cachedAuthorizer()}
		if in.object, err = c.request.inVersion(ctx, one.target); err != nil {
			c.addConfigError(one.policy, nil, err)
			continue
		}
		after, errs := c.request.Clock.Elapsed(), len(c.errs)
		now, err := c.invoke(ctx, one, in, past)
		step := policyStep(hop.Mutate, one.policy.name, c.request.Clock, after)
		switch {
		case err != nil || len(c.errs) > errs:
			step.Failed, step.Detail = true, "failed"
			if err == nil && one.policy.failure == admissionv1.Ignore {
				step.Detail = "failed, ignored"
			}
		case now:
			step.Detail = "changed the object"
		}
		c.request.Clock.AddStep(step)
		if err != nil {
			return err
		}
		changed = changed || now
	}
	if changed {
		past.requestRerun()
	}
	return nil
}

// invoke evaluates one policy and applies its patches in order. It reports whether they have changed the object.
func (c *mutatingRun) invoke(ctx context.Context, one *invocation, in input, past *history) (changed bool, err error) {
	program := one.policy.program()
	failed := func(err error) {
		c.errs = append(c.errs, policyError{policy: one.policy, binding: one.binding, err: err, reason: metav1.StatusReasonInvalid})
	}
	if program.err != nil {
		failed(program.err)
		return false, nil
	}
	if program.conditions != nil {
		result := program.conditions.Match(ctx, in.object, in.params, in.authorizer)
		if result.Error != nil {
			failed(result.Error)
		}
		if result.Error != nil || !result.Matches {
			return false, nil
		}
	}
	if !past.shouldRun(keyOf(one)) {
		return false, nil
	}
	before := in.object.VersionedObject.Object()
	if c.request.Object != nil { // the options of a connection are not changed
		types := c.Types(one.target.kind)
		for _, p := range program.patches {
			began := time.Now()
			err := c.request.apply(program.compiler.CreateContext(ctx), p, in, one.target, types)
			c.Metrics.mutated(one.policy.name, one.binding.name, err, time.Since(began))
			if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
				return false, status
			}
			if err != nil {
				failed(err)
			}
		}
	}
	if program.reinvoke {
		past.recordRun(keyOf(one))
	}
	if !in.object.Dirty || equality.Semantic.DeepEqualWithNilDifferentFromEmpty(before, in.object.VersionedObject.Object()) {
		in.object.Dirty = false
		return false, nil
	}
	return true, c.request.storePatched(ctx, in.object, one.target)
}

// finish returns the denial, if there is one.
func (c *mutatingRun) finish() error {
	var refused *apierrors.StatusError
	for i := range c.errs {
		f := &c.errs[i]
		if f.policy.failure == admissionv1.Ignore {
			continue
		}
		text := f.Error()
		if refused == nil {
			status, ok := errors.AsType[*apierrors.StatusError](c.request.Forbid(errors.New("admission request denied by policy")))
			if !ok {
				return apierrors.NewInternalError(f)
			}
			refused = status
			refused.ErrStatus.Message = text
			if f.reason != "" {
				refused.ErrStatus.Reason = f.reason
			}
		}
		refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{Message: text})
	}
	if refused == nil {
		return nil
	}
	return refused
}
