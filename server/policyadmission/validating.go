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

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
)

const (
	// failuresKey is the audit annotation that lists the refusals of bindings with the action Audit.
	failuresKey = "validation.policy.admission.k8s.io/validation_failure"
	// maxFailures bounds how many refusals it lists, and maxAnnotation how long the value of one audit annotation of a policy may be.
	maxFailures   = 50
	maxAnnotation = 10 << 10
)

// validatingPlugin is the plugin of hop 6.
type validatingPlugin struct {
	Config
	policies index[*validation]
}

func (v *validatingPlugin) admit(ctx context.Context, a *kind.Admission) error {
	active, err := v.policies.current(ctx)
	if err != nil && !isExempt(a) {
		return err
	}
	if len(active) == 0 || isExempt(a) {
		return nil
	}
	d := &dispatch{request: newRequest(a, v.Authorizer), metrics: v.Metrics}
	for _, p := range active {
		if err := d.policy(ctx, p); err != nil {
			return err
		}
	}
	return d.finish()
}

// dispatch is a write on its way through all ValidatingAdmissionPolicies.
type dispatch struct {
	request  *request
	metrics  *Metrics
	refused  []refusal
	failures []failure
}

// refusal is a decision that refuses the write; the first one is the answer to the client.
type refusal struct {
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

// misconfigured notes that a policy, or a binding of it, cannot be used.
func (d *dispatch) misconfigured(p *policy[*validation], b *binding, err error) {
	if p.failure == admissionv1.Ignore {
		return
	}
	if b == nil {
		d.refused = append(d.refused, refusal{policy: p.name, message: fmt.Sprintf("failed to configure policy: %v", err)})
		return
	}
	d.refused = append(d.refused, refusal{policy: p.name, binding: b.name, message: fmt.Sprintf("failed to configure binding: %v", err)})
}

// policy evaluates one policy under each of its bindings.
func (d *dispatch) policy(ctx context.Context, p *policy[*validation]) error {
	matched, err := p.criteria.Matches(ctx, d.request.Admission)
	if err == nil && matched == nil {
		return nil
	}
	var def *kind.Def
	if err == nil {
		def, err = paramDef(d.request.Admission, p.paramKind)
	}
	if err != nil {
		d.misconfigured(p, nil, err)
		return nil
	}
	at := d.request.targetOf(matched)
	published := annotations{}
	for _, b := range p.bindings {
		params, err := d.request.paramsFor(ctx, def, b)
		in := input{resource: at.resource, asks: d.request.asks()}
		if err == nil && len(params) > 0 {
			in.object, err = d.request.in(ctx, at)
		}
		if err != nil {
			d.misconfigured(p, b, err)
			continue
		}
		if in.namespace, err = d.request.home(ctx); err != nil {
			return err
		}
		for _, in.params = range params {
			decisions, values := p.program().evaluate(ctx, in)
			d.decided(p, b, decisions)
			d.annotated(p, b, values, published)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(published)) {
		d.request.Note(p.name+"/"+key, strings.Join(published[key], ", "))
	}
	return nil
}

// decided does what a binding wants to be done about the decisions of its policy.
func (d *dispatch) decided(p *policy[*validation], b *binding, decisions []decision) {
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
				d.refused = append(d.refused, refusal{policy: p.name, binding: b.name, message: one.message, reason: one.reason})
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

// annotations are the values of a policy's audit annotations by their keys. Bindings with different parameters may give several.
type annotations map[string][]string

// annotated collects the audit annotations of one evaluation. One that cannot be evaluated refuses the write.
func (d *dispatch) annotated(p *policy[*validation], b *binding, values []annotation, published annotations) {
	for _, v := range values {
		if v.fault != "" {
			d.refused = append(d.refused, refusal{policy: p.name, binding: b.name, message: v.fault})
			d.metrics.checked(p.name, b.name, "deny", &decision{message: v.fault, elapsed: v.elapsed})
			continue
		}
		value := v.value[:min(len(v.value), maxAnnotation)]
		if value != "" && !slices.Contains(published[v.key], value) {
			published[v.key] = append(published[v.key], value)
		}
	}
}

// finish publishes the failures for the audit log, and returns the refusal if there is one.
func (d *dispatch) finish() error {
	if len(d.failures) > 0 {
		text, err := json.Marshal(d.failures[:min(len(d.failures), maxFailures)])
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		d.request.Note(failuresKey, string(text))
	}
	if len(d.refused) == 0 {
		return nil
	}
	first := d.refused[0]
	if first.reason == "" {
		first.reason = metav1.StatusReasonInvalid
	}
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", first.policy, first.binding, first.message)
	if first.binding == "" {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", first.policy, first.message)
	}
	return refuse(d.request.Admission, message, first.reason)
}

// refuse is the answer to a write that a policy refuses, with the reason of the validation and the code that belongs to it.
func refuse(a *kind.Admission, message string, reason metav1.StatusReason) error {
	err := a.Forbid(errors.New(message))
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status.ErrStatus.Reason, status.ErrStatus.Code = reason, codeOf(reason)
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	}
	return err
}

// codeOf is the HTTP status of a reason that a validation may name.
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
