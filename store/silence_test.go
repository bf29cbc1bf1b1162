package store

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// halfFrozen is an etcd whose first member accepts watches but never responds, while the next one does.
type halfFrozen struct{ opened atomic.Int64 }

func (h *halfFrozen) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	s := &fakeStream{ctx: ctx, answers: make(chan *pb.WatchResponse, 2)}
	if h.opened.Add(1) > 1 {
		s.answers <- &pb.WatchResponse{Created: true}
		s.answers <- &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 5}}
	}
	return s, nil
}

type fakeStream struct {
	grpc.ClientStream
	ctx     context.Context
	answers chan *pb.WatchResponse
}

func (s *fakeStream) Send(*pb.WatchRequest) error { return nil }

func (s *fakeStream) Recv() (*pb.WatchResponse, error) {
	select {
	case r := <-s.answers:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// TestSilentWatch checks that a watch without response to a progress request is opened again at another member.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := &halfFrozen{}
		e := newEtcd(&remote{watch: etcd}, Config{}.withDefaults())
		e.wanted.Store(5)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		began, rev := time.Now(), int64(0)
		for b, err := range e.Watch(ctx, "/a/", 1) {
			if err != nil {
				t.Fatal(err)
			}
			rev = b.Rev
			break
		}
		if took := time.Since(began); rev != 5 || took > 2*minSilence {
			t.Errorf("the watch is at %d after %v, want 5 soon after %v", rev, took, minSilence)
		}
	})
}
