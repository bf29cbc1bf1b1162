package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"proa.dev/kv"
)

// forgetfulMember is an etcd whose watches deliver one change of the key /a/x without its previous pair.
type forgetfulMember struct {
	pb.KVClient
	answers []error // of the requests for the previous pair; nil after the last one
	watches int
}

func (m *forgetfulMember) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	m.watches++
	s := &fakeWatchStream{ctx: ctx, responses: make(chan *pb.WatchResponse, 2)}
	s.responses <- &pb.WatchResponse{Created: true}
	s.responses <- &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 7}, Events: []*mvccpb.Event{
		{Kv: &mvccpb.KeyValue{Key: []byte("/a/x"), Value: []byte("new"), CreateRevision: 3, ModRevision: 7}},
	}}
	return s, nil
}

func (m *forgetfulMember) Range(_ context.Context, req *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	var err error
	if len(m.answers) > 0 {
		err, m.answers = m.answers[0], m.answers[1:]
	}
	if err != nil {
		return nil, err
	}
	if string(req.Key) != "/a/x" || req.Revision != 6 {
		return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 7}}, nil
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 7}, Count: 1,
		Kvs: []*mvccpb.KeyValue{{Key: req.Key, Value: []byte("old"), CreateRevision: 3, ModRevision: 5}}}, nil
}

// TestMissingPreviousPair checks that a change without its previous pair does not end a watch: etcd leaves it out of events that it finds
// before it has finished to create the watch. The pair is read, also after an outage, and only if it was compacted the watch ends.
func TestMissingPreviousPair(t *testing.T) {
	unavailable := status.Error(codes.Internal, "etcd restarts")
	for _, c := range []struct {
		title   string
		answers []error
		watches int
		want    error
	}{
		{"etcd has it", nil, 1, nil},
		{"etcd is not available for a moment", []error{unavailable, unavailable}, 3, nil},
		{"it was compacted", []error{rpctypes.ErrGRPCCompacted}, 1, kv.ErrCompacted},
	} {
		t.Run(c.title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &forgetfulMember{answers: c.answers}
				e := newEtcd(remoteOf(m, m), Config{}.withDefaults())
				for b, err := range e.Watch(t.Context(), "/a/", 6) {
					if !errors.Is(err, c.want) {
						t.Errorf("got %v, want %v", err, c.want)
					}
					if err == nil && (len(b.Changes) != 1 || string(b.Changes[0].Prev.Value) != "old" || b.Rev != 7) {
						t.Errorf("got %+v", b)
					}
					break
				}
				if m.watches != c.watches {
					t.Errorf("%d watches were opened, want %d", m.watches, c.watches)
				}
			})
		})
	}
}

// slowMember is an etcd whose watches deliver a thousand changes without their previous pairs, and which takes a while for each read.
type slowMember struct{ forgetfulMember }

func (m *slowMember) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	if m.watches++; m.watches > 3 {
		return nil, status.Error(codes.PermissionDenied, "the watch is opened again and again")
	}
	s := &fakeWatchStream{ctx: ctx, responses: make(chan *pb.WatchResponse, 2)}
	s.responses <- &pb.WatchResponse{Created: true}
	many := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 1010}}
	for rev := int64(11); rev <= 1010; rev++ {
		many.Events = append(many.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("/a/x"), CreateRevision: 3, ModRevision: rev}})
	}
	s.responses <- many
	return s, nil
}

func (m *slowMember) Range(ctx context.Context, req *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1010}, Count: 1,
		Kvs: []*mvccpb.KeyValue{{Key: req.Key, Value: []byte("old"), CreateRevision: 3, ModRevision: req.Revision}}}, nil
}

// TestManyMissingPreviousPairs checks that previous pairs are read however many there are, as long as etcd answers.
func TestManyMissingPreviousPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &slowMember{}
		e := newEtcd(remoteOf(m, m), Config{}.withDefaults())
		for b, err := range e.Watch(t.Context(), "/a/", 10) {
			if err != nil || len(b.Changes) != 1000 || m.watches != 1 {
				t.Errorf("%d changes, %v, in watch %d", len(b.Changes), err, m.watches)
			}
			break
		}
	})
}
