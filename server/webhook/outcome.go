package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/admissionmatch"
)

// The types of webhooks, as metrics name them.
const (
	admitting  = "admit"
	validating = "validating"
)

// rejection is the error for a write that a webhook denies.
type rejection struct{ *apierrors.StatusError }

func (e *rejection) Unwrap() error { return e.StatusError }

// failure is the error for a write that is rejected because a webhook could not be called.
type failure struct {
	*apierrors.StatusError
	logged string
}

func (e *failure) Unwrap() error { return e.StatusError }

// LogValue returns the failure without what the webhook has responded.
func (e *failure) LogValue() slog.Value { return slog.StringValue(e.logged) }

// outcome is the result of one call.
type outcome struct {
	hook       *hook
	answer     *admissionv1.AdmissionResponse // nil when there is none
	err        error
	failedOpen bool // it failed, and the write is not rejected
	detail     string
	// after and took are when the call began and how long it took, by the clock of the write.
	after, took time.Duration
}

// step describes the call for the record of the write. It quotes nothing that the webhook has responded.
func (o *outcome) step(h hop.Hop) hop.Step {
	return hop.Step{Hop: h, Name: "webhook " + o.hook.name, After: o.after, Took: o.took, Detail: o.detail,
		Failed: o.err != nil || o.failedOpen}
}

// describe says in a word or two what came of a call.
func describe(o *outcome, fault *callError) string {
	_, isRefusal := errors.AsType[*rejection](o.err)
	switch {
	case o.err == nil:
		return ""
	case isRefusal:
		return "denied"
	case fault == nil:
		return "failed"
	}
	text := "failed"
	if errors.Is(fault.reason, context.DeadlineExceeded) {
		text = "timeout " + o.hook.timeout.String()
	}
	if o.hook.ignore {
		text += ", ignored"
	}
	return text
}

// settle applies the webhook's failurePolicy to the error of a call, and counts the call.
func (c *caller) settle(ctx context.Context, a *kind.Admission, o *outcome, took time.Duration) {
	code, rejected, sort := 200, o.err != nil, noError
	fault, isFault := errors.AsType[*callError](o.err)
	canceled := isFault && errors.Is(fault.reason, context.Canceled)
	o.detail, o.took = describe(o, fault), took
	switch refused, isRefusal := errors.AsType[*rejection](o.err); {
	case o.err == nil:
	case isFault:
		code, sort = fault.code, callingError
		rejected = !o.hook.ignore
		logged := fault.logged()
		if c.Log != nil {
			c.Log.WarnContext(ctx, "a webhook could not be called", "webhook", o.hook.name, "configuration", o.hook.configuration,
				"ignored", o.hook.ignore, "err", logged)
		}
		if o.err = nil; rejected {
			o.err = &failure{apierrors.NewInternalError(fault), "failed calling webhook " + strconv.Quote(o.hook.name) + ": " + logged}
		} else if o.failedOpen = !canceled; o.failedOpen {
			c.Metrics.failedOpen(o.hook.name, c.webhookType)
		}
	case isRefusal:
		code = int(refused.ErrStatus.Code)
		o.err = refused.StatusError
	default:
		code, sort = 0, internalError
	}
	operation := admissionmatch.Operation(a)
	c.Metrics.called(labels{o.hook.name, c.webhookType, operation}, code, rejected, took)
	if rejected && !canceled {
		c.Metrics.rejected(labels{o.hook.name, c.webhookType, operation}, sort, code)
	}
}

// addToWrite adds the warnings and audit annotations of a response to those of the write.
func addToWrite(a *kind.Admission, o *outcome) {
	if o.answer == nil {
		return
	}
	for i, text := range o.answer.Warnings {
		if i == maxWarnings {
			break
		}
		if text != "" {
			a.Warn(truncate(text, maxWarning))
		}
	}
	n := 0
	for key, value := range o.answer.AuditAnnotations {
		if n++; n > maxNotes {
			break
		}
		a.AddAuditAnnotation(o.hook.name+"/"+truncate(key, 256), truncate(value, maxNote))
	}
}

// errTimeout returns the error for a write whose deadline has passed.
func errTimeout() error {
	return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
}

// versionFor returns the write in the version that a webhook wants to see; nil if the webhook does not match.
func (c *caller) versionFor(ctx context.Context, r *request, h *hook) (*versioned, error) {
	def, err := h.criteria.Matches(ctx, r.Admission)
	if def == nil || err != nil {
		return nil, err
	}
	v, err := r.inVersion(ctx, def)
	if err != nil { // the text comes from a conversion webhook, and may repeat the object
		return nil, &failure{apierrors.NewInternalError(err), fmt.Sprintf("the object cannot be shown to webhook %q", h.name)}
	}
	if h.conditions == nil {
		return v, nil
	}
	result := h.conditions().Match(ctx, r.attributes(v), nil, r.authorizer)
	if result.Error != nil {
		return nil, apierrors.NewForbidden(r.Served.Resource(), r.ObjectName(), result.Error)
	}
	if !result.Matches {
		c.Metrics.excluded(labels{h.name, c.webhookType, admissionmatch.Operation(r.Admission)})
		return nil, nil
	}
	return v, nil
}
