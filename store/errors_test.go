package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"proa.dev/kv"
	"proa.dev/store/singlemember"
	"proa.dev/store/singlemember/diskspace"
)

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
	}{
		{rpctypes.ErrGRPCCompacted, kv.ErrCompacted},
		{rpctypes.ErrCompacted, kv.ErrCompacted},
		{mvcc.ErrCompacted, kv.ErrCompacted},
		{fmt.Errorf("%w: more", kv.ErrCompacted), kv.ErrCompacted},
		{rpctypes.ErrGRPCFutureRev, kv.ErrFuture},
		{mvcc.ErrFutureRev, kv.ErrFuture},
		{rpctypes.ErrGRPCRequestTooLarge, kv.ErrTooLarge},
		{rpctypes.ErrGRPCTooManyOps, kv.ErrTooLarge},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (3 vs. 2)"), kv.ErrTooLarge},
		{etcderrors.ErrRequestTooLarge, kv.ErrTooLarge},
		{etcderrors.ErrStopped, kv.ErrUnavailable},
		{etcderrors.ErrTooManyRequests, kv.ErrUnavailable},
		{etcderrors.ErrNoSpace, kv.ErrFull},
		{diskspace.ErrFull, kv.ErrFull},
		{singlemember.ErrBroken, kv.ErrUnavailable},
		{rpctypes.ErrGRPCNoLeader, kv.ErrUnavailable},
		{rpctypes.ErrGRPCStopped, kv.ErrUnavailable},
		{rpctypes.ErrGRPCTimeout, kv.ErrUnavailable},
		{rpctypes.ErrTooManyRequests, kv.ErrUnavailable},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, kv.ErrUnavailable},
		{status.Error(codes.Unavailable, "connection refused"), kv.ErrUnavailable},
		{status.Error(codes.Canceled, "context canceled"), context.Canceled},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), context.DeadlineExceeded},
		{context.DeadlineExceeded, kv.ErrUnavailable},
		{context.Canceled, kv.ErrUnavailable},
		{unavailable{io.EOF}, kv.ErrUnavailable},
		{unavailable{io.EOF}, io.EOF},
		{rpctypes.ErrGRPCNoSpace, nil},
		{rpctypes.ErrGRPCPermissionDenied, nil},
		{io.EOF, nil},
	} {
		err := wrapError("commit", "/a", c.err)
		if !errors.Is(err, c.err) {
			t.Errorf("%v is lost in %v", c.err, err)
		}
		if c.want != nil {
			if !errors.Is(err, c.want) {
				t.Errorf("%v is not %v", err, c.want)
			}
			continue
		}
		for _, class := range []error{kv.ErrCompacted, kv.ErrFuture, kv.ErrUnavailable, kv.ErrTooLarge} {
			if errors.Is(err, class) {
				t.Errorf("%v is %v", err, class)
			}
		}
	}
	if err := wrapError("commit", "/a", nil); err != nil {
		t.Errorf("nil became %v", err)
	}
	if got, want := wrapError("commit", "/a", io.EOF).Error(), "commit /a: EOF"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
