package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/watch"
)

func notFound(def *kind.Def, name string) error {
	return apierrors.NewNotFound(def.Resource(), name)
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// refused is a Status without details beyond its code, in the words of the router clients know.
func refused(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}}
}

func methodNotAllowed() error {
	return refused(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
}

func noSuchResource() error {
	return refused(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

// modified is the conflict of a write against a newer revision.
func modified(def *kind.Def, name string) error {
	return apierrors.NewConflict(def.Resource(), name,
		errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

// storeError turns what the store or a cache says into what a client understands.
func storeError(err error) error {
	var tooNew *watch.TooNew
	var tooOld *watch.TooOld
	var unreadable *kv.Unreadable
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooNew):
		return tooLarge(tooNew)
	case errors.As(err, &tooOld):
		return apierrors.NewResourceExpired(tooOld.Error())
	case errors.As(err, &unreadable):
		return &unlogged{apierrors.NewInternalError(unreadable), unreadable}
	case errors.Is(err, kv.ErrCompacted):
		return apierrors.NewResourceExpired("The provided resource version is too old: it has been compacted.")
	case errors.Is(err, kv.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError("the object is larger than the store accepts (1.5 MiB)")
	case errors.Is(err, kv.ErrFull):
		return away("the write is refused: " + err.Error())
	case errors.Is(err, kv.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return away("the store is not available: " + err.Error() + "; the outcome of a write is unknown, read before trying again")
	}
	return err
}

// unlogged is an error that clients see in other words than logs.
type unlogged struct {
	*apierrors.StatusError
	reason slog.LogValuer
}

func (u *unlogged) Unwrap() error { return u.StatusError }

// LogValue is what logs may have of it.
func (u *unlogged) LogValue() slog.Value { return u.reason.LogValue() }

// logged is an error as logs may have it.
func logged(err error) any {
	if v, ok := errors.AsType[interface {
		error
		slog.LogValuer
	}](err); ok {
		return v
	}
	return err
}

// unauthenticated is what a client learns whose credentials could not be verified: 401, unless it is the store that does not answer.
func unauthenticated(err error) error {
	if errors.Is(err, errAccountsAway) {
		return away("the store is not available, and so it cannot be told whether the token is good; try again")
	}
	return apierrors.NewUnauthorized("Unauthorized")
}

// away is the error of a store that cannot do what it is asked for now. There is no Retry-After: clients would hide the failure
// behind their own repeats, and the repeat of a write whose outcome is unknown is the user's decision.
func away(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: message,
	}}
}

func tooLarge(e *watch.TooNew) error {
	err := apierrors.NewTimeoutError(e.Error(), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// statusOf is the Status body of an error.
func statusOf(err error) *metav1.Status {
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		st := s.Status()
		st.Kind, st.APIVersion = "Status", "v1"
		if st.Code == 0 {
			st.Code = http.StatusInternalServerError
		}
		return &st
	}
	if e := storeError(err); errors.As(e, &s) {
		return statusOf(e)
	}
	st := apierrors.NewInternalError(err).Status()
	st.Kind, st.APIVersion = "Status", "v1"
	st.Message = err.Error()
	st.Reason = ""
	st.Details = nil
	return &st
}
