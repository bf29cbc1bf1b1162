package policyadmission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/registrations"
)

const (
	// failuresKey is the audit annotation that lists the denials of bindings with the action Audit.
	failuresKey = "validation.policy.admission.k8s.io/validation_failure"
	// maxFailures is how many denials it lists, and maxAnnotation the length of the longest value of a policy's audit
	// annotation.
	maxFailures   = 50
	maxAnnotation = 10 << 10
)

// validatingPlugin is the plugin of hop 6.
type validatingPlugin struct {
	Config
	policies registrations.Index[[]*policy[*validation]]
}

func (v *validatingPlugin) admit(ctx context.Context, a *kind.Admission) error {
	active, err := v.policies.Current(ctx)
	if err != nil && !isExempt(a) {
		return err
	}
	if len(active) == 0 || isExempt(a) {
		return nil
	}
	d := &validatingRun{request: newRequest(a, v.Authorizer), metrics: v.Metrics}
	for _, p := range active {
		after, denials := a.Clock.Elapsed(), len(d.denials)
		matched, err := d.policy(ctx, p)
		if matched {
			step := policyStep(hop.Validate, p.name, a.Clock, after)
			if err != nil || len(d.denials) > denials {
				step.Failed, step.Detail = true, "denied"
			}
			a.Clock.AddStep(step)
		}
		if err != nil {
			return err
		}
	}
	return d.finish()
}

// validatingRun evaluates all ValidatingAdmissionPolicies for a write.
type validatingRun struct {
	request  *request
	metrics  *Metrics
	denials  []denial
	failures []failure
}

// denial is a decision that denies the write; the client gets the first one.
type denial struct {
	policy, binding string // no binding: the policy itself cannot be used
	message         string
	reason          metav1.StatusReason
}

// failure is one entry of the audit annotation failuresKey.
type failure struct {
	Message           string                         `json:"message"`
	Policy            string                         `json:"policy"`
	Binding           string                         `json:"binding"`
	ExpressionIndex   int                            `json:"expressionIndex"`
	ValidationActions []admissionv1.ValidationAction `json:"validationActions"`
}

// addConfigError records that a policy, or a binding of it, cannot be used.
func (d *validatingRun) addConfigError(p *policy[*validation], b *binding, err error) {
	if p.failure == admissionv1.Ignore {
		return
	}
	if b == nil {
		d.denials = append(d.denials, denial{policy: p.name, message: fmt.Sprintf("failed to configure policy: %v", err)})
		return
	}
	d.denials = append(d.denials, denial{policy: p.name, binding: b.name, message: fmt.Sprintf("failed to configure binding: %v", err)})
}

// policy evaluates one policy under each of its bindings, if it matches.
func (d *validatingRun) policy(ctx context.Context, p *policy[*validation]) (matches bool, err error) {
	matched, err := p.criteria.Matches(ctx, d.request.Admission)
	if err == nil && matched == nil {
		return false, nil
	}
	var def *kind.Def
	if err == nil {
		def, err = paramDef(d.request.Admission, p.paramKind)
	}
	if err != nil {
		d.addConfigError(p, nil, err)
		return true, nil
	}
	at := d.request.targetOf(matched)
	published := annotations{}
	for _, b := range p.bindings {
		params, err := d.request.paramsFor(ctx, def, b)
		in := input{resource: at.resource, authorizer: d.request.cachedAuthorizer()}
		if err == nil && len(params) > 0 {
			in.object, err = d.request.inVersion(ctx, at)
		}
		if err != nil {
			d.addConfigError(p, b, err)
			continue
		}
		if in.namespace, err = d.request.namespaceObject(ctx); err != nil {
			return true, err
		}
		for _, in.params = range params {
			decisions, values := p.program().evaluate(ctx, in)
			d.applyActions(p, b, decisions)
			d.collectAnnotations(p, b, values, published)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(published)) {
		d.request.AddAuditAnnotation(p.name+"/"+key, strings.Join(published[key], ", "))
	}
	return true, nil
}

// policyStep describes the evaluation of a policy, which began at after and ends now, for the record of the write.
func policyStep(h hop.Hop, policy string, c *hop.Clock, after time.Duration) hop.Step {
	return hop.Step{Hop: h, Name: "policy " + policy, After: after, Took: c.Elapsed() - after}
}

// applyActions applies the actions of a binding to the decisions of its policy.
func (d *validatingRun) applyActions(p *policy[*validation], b *binding, decisions []decision) {
	for i := range decisions {
		one := &decisions[i]
		if !one.denied {
			if one.failed {
				d.metrics.checked(p.name, b.name, "allow", one)
			}
			continue
		}
		for _, action := range b.actions {
			switch action {
			case admissionv1.Deny:
				d.denials = append(d.denials, denial{policy: p.name, binding: b.name, message: one.message, reason: one.reason})
			case admissionv1.Audit:
				d.failures = append(d.failures, failure{
					Message: one.message, Policy: b.policy, Binding: b.name, ExpressionIndex: i, ValidationActions: b.actions,
				})
			case admissionv1.Warn:
				d.request.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", p.name, b.name, one.message))
			}
			d.metrics.checked(p.name, b.name, strings.ToLower(string(action)), one)
		}
	}
}

// annotations holds the values of a policy's audit annotations by their keys. Bindings with different parameters may
// give several.
type annotations map[string][]string

// collectAnnotations collects the audit annotations of one evaluation. One that cannot be evaluated denies the write.
func (d *validatingRun) collectAnnotations(p *policy[*validation], b *binding, values []annotation, published annotations) {
	for _, v := range values {
		if v.fault != "" {
			d.denials = append(d.denials, denial{policy: p.name, binding: b.name, message: v.fault})
			d.metrics.checked(p.name, b.name, "deny", &decision{message: v.fault, elapsed: v.elapsed})
			continue
		}
		value := v.value[:min(len(v.value), maxAnnotation)]
		if value != "" && !slices.Contains(published[v.key], value) {
			published[v.key] = append(published[v.key], value)
		}
	}
}

// finish adds the failures to the audit event, and returns the denial if there is one.
func (d *validatingRun) finish() error {
	if len(d.failures) > 0 {
		text, err := json.Marshal(d.failures[:min(len(d.failures), maxFailures)])
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		d.request.AddAuditAnnotation(failuresKey, string(text))
	}
	if len(d.denials) == 0 {
		return nil
	}
	first := d.denials[0]
	if first.reason == "" {
		first.reason = metav1.StatusReasonInvalid
	}
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", first.policy, first.binding,
		first.message)
	if first.binding == "" {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", first.policy, first.message)
	}
	return denialError(d.request.Admission, message, first.reason)
}

// denialError returns the error for a write that a policy denies, with the reason of the validation and its status
// code.
func denialError(a *kind.Admission, message string, reason metav1.StatusReason) error {
	err := a.Forbid(errors.New(message))
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status.ErrStatus.Reason, status.ErrStatus.Code = reason, codeOf(reason)
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	}
	return err
}

// codeOf returns the HTTP status code of a reason that a validation may name.
func codeOf(reason metav1.StatusReason) int32 {
	switch reason {
	case metav1.StatusReasonForbidden:
		return http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		return http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusUnprocessableEntity
}
