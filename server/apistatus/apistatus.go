// Package apistatus makes the errors that clients see: each is a Status with a code, a reason and a message in the
// words that clients of Kubernetes know. Errors of the store and of caches are translated here.
package apistatus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/fairqueue"
	"proa.dev/watch"
)

// The HTTP status codes of answers and errors. The pipeline is not HTTP and does not import net/http; these numbers are
// part of the API all the same.
const (
	CodeOK                 = 200
	CodeCreated            = 201
	CodeAccepted           = 202
	codeNotFound           = 404
	codeMethodNotAllowed   = 405
	CodeUnprocessable      = 422
	codeInternalError      = 500
	codeServiceUnavailable = 503
)

// NotFound returns the error 404 for an object.
func NotFound(def *kind.Def, name string) error {
	return apierrors.NewNotFound(def.Resource(), name)
}

// BadRequest returns the error 400 with a formatted message.
func BadRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// Refused returns an error with empty details, as upstream's HTTP router makes them.
func Refused(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}}
}

// MethodNotAllowed returns the error 405.
func MethodNotAllowed() error {
	return Refused(codeMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource")
}

// NoSuchResource returns the error 404 for a resource that is not served.
func NoSuchResource() error {
	return Refused(codeNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

// Modified returns the error 409 for a write to an object that has changed since the client read it.
func Modified(def *kind.Def, name string) error {
	return apierrors.NewConflict(def.Resource(), name,
		errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

// FromStore translates errors of the store and of caches into errors that clients know; others it returns as they are.
func FromStore(err error) error {
	var tooNew *watch.TooNew
	var tooOld *watch.TooOld
	var unreadable *kv.Unreadable
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooNew):
		return TooLargeVersion(tooNew)
	case errors.As(err, &tooOld):
		return apierrors.NewResourceExpired(tooOld.Error())
	case errors.As(err, &unreadable):
		return &loggableError{apierrors.NewInternalError(unreadable), unreadable}
	case errors.Is(err, kv.ErrCompacted):
		return apierrors.NewResourceExpired("The provided resource version is too old: it has been compacted.")
	case errors.Is(err, kv.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError("the object is larger than the store accepts (1.5 MiB)")
	case errors.Is(err, kv.ErrFull):
		return Unavailable("the write is refused: " + err.Error())
	case errors.Is(err, kv.ErrUnavailable):
		return &storeUnavailable{unavailableStatus(noAnswer(err))}
	case errors.Is(err, context.DeadlineExceeded):
		return Unavailable(noAnswer(err))
	}
	return err
}

// noAnswer returns what clients are told when the store does not answer.
func noAnswer(err error) string {
	return "the store is not available: " + err.Error() + "; the outcome of a write is unknown, read before trying again"
}

// storeUnavailable is the error 503 of a request for which the store has not answered.
type storeUnavailable struct{ *apierrors.StatusError }

// Unwrap returns the error that clients see.
func (u *storeUnavailable) Unwrap() error { return u.StatusError }

// IsStoreUnavailable reports whether a request failed because the store does not answer, whichever hop has asked it.
func IsStoreUnavailable(err error) bool {
	_, ok := errors.AsType[*storeUnavailable](err)
	return ok || errors.Is(err, kv.ErrUnavailable)
}

// loggableError is an error whose text for clients differs from what may be logged.
type loggableError struct {
	*apierrors.StatusError
	reason slog.LogValuer
}

// Unwrap returns the error that clients see.
func (u *loggableError) Unwrap() error { return u.StatusError }

// LogValue returns what may be logged of the error.
func (u *loggableError) LogValue() slog.Value { return u.reason.LogValue() }

// ForLog returns what may be logged of an error.
func ForLog(err error) any {
	if v, ok := errors.AsType[interface {
		error
		slog.LogValuer
	}](err); ok {
		return v
	}
	return err
}

// Unavailable returns the error 503. It has no Retry-After: clients would hide the failure behind their own retries,
// and whether a write whose outcome is unknown is tried again is the decision of the user.
func Unavailable(message string) error { return unavailableStatus(message) }

func unavailableStatus(message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: codeServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: message,
	}}
}

// TooLargeVersion returns the error for a resourceVersion that the server has not reached.
func TooLargeVersion(e *watch.TooNew) error {
	err := apierrors.NewTimeoutError(e.Error(), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version"}}
	return err
}

// Of returns the Status of an error, which is the body of its answer.
func Of(err error) *metav1.Status {
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		st := s.Status()
		st.Kind, st.APIVersion = "Status", "v1"
		if st.Code == 0 {
			st.Code = codeInternalError
		}
		return &st
	}
	if e := FromStore(err); errors.As(e, &s) {
		return Of(e)
	}
	st := apierrors.NewInternalError(err).Status()
	st.Kind, st.APIVersion = "Status", "v1"
	st.Message = err.Error()
	st.Reason = ""
	st.Details = nil
	return &st
}

// TooManyRequests returns the error 429, with which a client is asked to try again after a second.
func TooManyRequests() error { return apierrors.NewTooManyRequests(fairqueue.ErrBusy.Error(), 1) }

// IsBusy reports whether a status is that of TooManyRequests: the server has refused a request to protect itself.
func IsBusy(st *metav1.Status) bool {
	return st.Reason == metav1.StatusReasonTooManyRequests && st.Message == fairqueue.ErrBusy.Error()
}
