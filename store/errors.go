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
	"proa.dev/store/singlemember"
	"proa.dev/store/singlemember/diskspace"
)

// wrapError wraps err with the operation and with the error of package kv that it corresponds to. The original error
// stays in the chain, so that callers can still test for context.Canceled.
func wrapError(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if key != "" {
		op += " " + key
	}
	err = restoreContextError(err)
	if class := classify(err); class != nil && !errors.Is(err, class) {
		return fmt.Errorf("%s: %w: %w", op, class, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// restoreContextError restores the error of the context where gRPC has replaced it by a status with the same text.
func restoreContextError(err error) error {
	for _, ctxErr := range []error{context.Canceled, context.DeadlineExceeded} {
		if st, ok := status.FromError(err); ok && st.Message() == ctxErr.Error() && !errors.Is(err, ctxErr) {
			return fmt.Errorf("%w (%w)", ctxErr, err)
		}
	}
	return err
}

// unavailable wraps an error that did not come from etcd, and makes classify return kv.ErrUnavailable for it.
type unavailable struct{ error }

func (u unavailable) Unwrap() error { return u.error }

// classify returns the error of package kv that err corresponds to, or nil if there is none.
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
	case errors.Is(err, diskspace.ErrFull), errors.Is(err, etcderrors.ErrNoSpace):
		return kv.ErrFull
	case slices.ContainsFunc(unavailableErrors(), func(e error) bool { return errors.Is(err, e) }):
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
		// etcd refuses requests when it is behind with applying entries.
		return kv.ErrUnavailable
	}
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return kv.ErrUnavailable
	case codes.ResourceExhausted:
		// The gRPC client refuses messages above its limit before etcd sees them.
		if strings.Contains(err.Error(), "larger than max") {
			return kv.ErrTooLarge
		}
	}
	return nil
}

// unavailableErrors returns the errors of a member in this process that cannot answer at the moment.
func unavailableErrors() []error {
	return []error{
		etcderrors.ErrStopped, etcderrors.ErrCanceled, etcderrors.ErrTimeout, etcderrors.ErrTimeoutDueToLeaderFail,
		etcderrors.ErrTimeoutDueToConnectionLost,
		etcderrors.ErrTimeoutWaitAppliedIndex, etcderrors.ErrNoLeader, etcderrors.ErrNotLeader, etcderrors.ErrLeaderChanged,
		etcderrors.ErrUnhealthy,
		etcderrors.ErrTooManyRequests, singlemember.ErrBroken,
	}
}

// isLeaseExpired reports whether a write failed because its lease has expired.
func isLeaseExpired(err error) bool {
	return errors.Is(err, etcdlease.ErrLeaseNotFound) || err != nil && rpctypes.ErrorDesc(err) == rpctypes.ErrLeaseNotFound.Error()
}

// code returns the gRPC code of err. The etcd client wraps some statuses in an error type of its own.
func code(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	return status.Code(err)
}
