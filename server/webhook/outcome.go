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

	"proa.dev/kinds/kind"
	"proa.dev/server/match"
)

// The sorts of webhooks, as metrics call them.
const (
	admitting  = "admit"
	validating = "validating"
)

// rejection is what a webhook says of a write that it does not allow.
type rejection struct{ *apierrors.StatusError }

func (e *rejection) Unwrap() error { return e.StatusError }

// failure is the refusal of a write because a webhook could not be asked.
type failure struct {
	*apierrors.StatusError
	logged string
}

func (e *failure) Unwrap() error { return e.StatusError }

// LogValue is the failure without what the webhook has answered.
func (e *failure) LogValue() slog.Value { return slog.StringValue(e.logged) }

// outcome is what has come of one call.
type outcome struct {
	hook       *hook
	answer     *admissionv1.AdmissionResponse // nil when there is none
	err        error
	failedOpen bool // it failed, and the write goes on
}

// settle turns the error of a call into what it means for the write by the webhook's failurePolicy, and counts the call.
func (c *caller) settle(ctx context.Context, a *kind.Admission, o *outcome, took time.Duration) {
	code, rejected, sort := 200, o.err != nil, noError
	fault, isFault := errors.AsType[*callError](o.err)
	canceled := isFault && errors.Is(fault.reason, context.Canceled)
	switch refused, isRefusal := errors.AsType[*rejection](o.err); {
	case o.err == nil:
	case isFault:
		code, sort = fault.code, callingError
		rejected = !o.hook.ignore
		logged := fault.logged()
		if c.Log != nil {
			c.Log.WarnContext(ctx, "a webhook could not be asked", "webhook", o.hook.name, "configuration", o.hook.configuration, "ignored", o.hook.ignore, "err", logged)
		}
		if o.err = nil; rejected {
			o.err = &failure{apierrors.NewInternalError(fault), "failed calling webhook " + strconv.Quote(o.hook.name) + ": " + logged}
		} else if o.failedOpen = !canceled; o.failedOpen {
			c.Metrics.failedOpen(o.hook.name, c.sort)
		}
	case isRefusal:
		code = int(refused.ErrStatus.Code)
		o.err = refused.StatusError
	default:
		code, sort = 0, internalError
	}
	operation := match.Operation(a)
	c.Metrics.called(labels{o.hook.name, c.sort, operation}, code, rejected, took)
	if rejected && !canceled {
		c.Metrics.rejected(labels{o.hook.name, c.sort, operation}, sort, code)
	}
}

// tell adds the warnings and audit annotations of an answer to those of the write.
func tell(a *kind.Admission, o *outcome) {
	if o.answer == nil {
		return
	}
	for i, text := range o.answer.Warnings {
		if i == maxWarnings {
			break
		}
		if text != "" {
			a.Warn(cut(text, maxWarning))
		}
	}
	n := 0
	for key, value := range o.answer.AuditAnnotations {
		if n++; n > maxNotes {
			break
		}
		a.Note(o.hook.name+"/"+cut(key, 256), cut(value, maxNote))
	}
}

// errTimeout refuses a write whose time is over.
func errTimeout() error {
	return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
}

// wanted returns the write in the version in which a webhook wants to see it; nil if it does not.
func (c *caller) wanted(ctx context.Context, r *request, h *hook) (*versioned, error) {
	def, err := h.criteria.Matches(ctx, r.Admission)
	if def == nil || err != nil {
		return nil, err
	}
	v, err := r.in(ctx, def)
	if err != nil { // who converts objects says it, and may repeat them
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
		c.Metrics.excluded(labels{h.name, c.sort, match.Operation(r.Admission)})
		return nil, nil
	}
	return v, nil
}
