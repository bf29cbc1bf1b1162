package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	etcdlease "go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"proa.dev/kv"
	"proa.dev/store/solo"
)

// fail wraps err with the operation, and with the word of package kv that says what a caller can do.
// The original error stays in the chain, so that a caller can still ask for context.Canceled.
func fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if key != "" {
		op += " " + key
	}
	err = contextual(err)
	if class := classify(err); class != nil && !errors.Is(err, class) {
		return fmt.Errorf("%s: %w: %w", op, class, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// contextual puts the context's own error back where gRPC has put its text into a status.
func contextual(err error) error {
	for _, ctxErr := range []error{context.Canceled, context.DeadlineExceeded} {
		if st, ok := status.FromError(err); ok && st.Message() == ctxErr.Error() && !errors.Is(err, ctxErr) {
			return fmt.Errorf("%w (%w)", ctxErr, err)
		}
	}
	return err
}

// unavailable marks an error that did not come from etcd as one that the store could not be reached.
type unavailable struct{ error }

func (u unavailable) Unwrap() error { return u.error }

// classify returns the error of package kv that err means, or nil when there is none.
func classify(err error) error {
	switch {
	case errors.Is(err, mvcc.ErrCompacted):
		return kv.ErrCompacted
	case errors.Is(err, mvcc.ErrFutureRev):
		return kv.ErrFuture
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return kv.ErrUnavailable
	case errors.As(err, new(unavailable)):
		return kv.ErrUnavailable
	case errors.Is(err, etcderrors.ErrRequestTooLarge):
		return kv.ErrTooLarge
	case errors.Is(err, solo.ErrFull), errors.Is(err, etcderrors.ErrNoSpace):
		return kv.ErrFull
	case slices.ContainsFunc(away(), func(e error) bool { return errors.Is(err, e) }):
		return kv.ErrUnavailable
	}
	switch rpctypes.ErrorDesc(err) {
	case rpctypes.ErrCompacted.Error():
		return kv.ErrCompacted
	case rpctypes.ErrFutureRev.Error():
		return kv.ErrFuture
	case rpctypes.ErrRequestTooLarge.Error(), rpctypes.ErrTooManyOps.Error():
		return kv.ErrTooLarge
	case rpctypes.ErrTooManyRequests.Error():
		// etcd sheds load when its apply loop lags behind.
		return kv.ErrUnavailable
	}
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return kv.ErrUnavailable
	case codes.ResourceExhausted:
		// The gRPC client refuses a message above its own limit before etcd sees it.
		if strings.Contains(err.Error(), "larger than max") {
			return kv.ErrTooLarge
		}
	}
	return nil
}

// away are the errors with which a member in this process says that it cannot answer now.
func away() []error {
	return []error{
		etcderrors.ErrStopped, etcderrors.ErrCanceled, etcderrors.ErrTimeout, etcderrors.ErrTimeoutDueToLeaderFail, etcderrors.ErrTimeoutDueToConnectionLost,
		etcderrors.ErrTimeoutWaitAppliedIndex, etcderrors.ErrNoLeader, etcderrors.ErrNotLeader, etcderrors.ErrLeaderChanged, etcderrors.ErrUnhealthy,
		etcderrors.ErrTooManyRequests, solo.ErrBroken,
	}
}

// isLeaseGone says that a write named a lease that has expired.
func isLeaseGone(err error) bool {
	return errors.Is(err, etcdlease.ErrLeaseNotFound) || err != nil && rpctypes.ErrorDesc(err) == rpctypes.ErrLeaseNotFound.Error()
}

// code returns the gRPC code of err; the client wraps some statuses in an error type of its own.
func code(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	return status.Code(err)
}
