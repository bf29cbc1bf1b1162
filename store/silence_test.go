package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// frozenFirstMember is a watch client whose first watch gets no response, while the next ones do.
type frozenFirstMember struct{ opened atomic.Int64 }

func (h *frozenFirstMember) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	s := &fakeWatchStream{ctx: ctx, responses: make(chan *pb.WatchResponse, 2)}
	if h.opened.Add(1) > 1 {
		s.responses <- &pb.WatchResponse{Created: true}
		s.responses <- &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 5}}
	}
	return s, nil
}

// remoteOf returns the connection to an etcd of one member, which nobody probes.
func remoteOf(kv pb.KVClient, watch pb.WatchClient) *remote {
	return &remote{endpoints: newEndpoints(slog.New(slog.DiscardHandler), &endpoint{kv: kv, watch: watch})}
}

type fakeWatchStream struct {
	grpc.ClientStream
	ctx       context.Context
	responses chan *pb.WatchResponse
}

func (s *fakeWatchStream) Send(*pb.WatchRequest) error { return nil }

func (s *fakeWatchStream) Recv() (*pb.WatchResponse, error) {
	select {
	case r := <-s.responses:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// TestUnresponsiveWatchIsReopened checks that a watch without response to a progress request is opened again at another member.
func TestUnresponsiveWatchIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := &frozenFirstMember{}
		e := newEtcd(remoteOf(nil, etcd), Config{}.withDefaults())
		e.wanted.Store(5)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		start, rev := time.Now(), int64(0)
		for b, err := range e.Watch(ctx, "/a/", 1) {
			if err != nil {
				t.Fatal(err)
			}
			rev = b.Rev
			break
		}
		if took := time.Since(start); rev != 5 || took > 2*minSilence {
			t.Errorf("the watch is at %d after %v, want 5 soon after %v", rev, took, minSilence)
		}
	})
}
