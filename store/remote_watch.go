package store

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// A broken watch is opened again after a pause between these.
	minReconnect = 20 * time.Millisecond
	maxReconnect = 500 * time.Millisecond
	// A watch that was asked for its progress, or opened, and hears nothing for a time between these counts as broken: its
	// member may be frozen, or cut off, while others answer. The time doubles, so that a member that is only slow gets there.
	minSilence = 2 * time.Second
	maxSilence = 30 * time.Second
)

// remoteStream is a watch on a gRPC stream of its own, because etcd answers a request for progress only when
// all watches of a stream are up to date. When the stream breaks it opens another one right after the last
// revision that it has told completely, so that nothing is told twice or left out.
type remoteStream struct {
	r      *remote
	prefix string
	// told is the revision up to which everything has been told.
	told int64
	// part gathers the fragments of one answer.
	part news

	conn *watchConn
	// retryAt is when a stream is opened again after the last one failed, and pause the time before that. Whoever wakes the
	// watch meanwhile does not postpone it.
	retryAt time.Time
	pause   time.Duration
	// asked is since when an answer is owed, zero for none, and silence how long it may take.
	asked   time.Time
	silence time.Duration
}

// watchConn is one gRPC stream with the goroutine that receives from it.
type watchConn struct {
	stream pb.Watch_WatchClient
	cancel context.CancelFunc
	in     chan received
	wg     sync.WaitGroup
}

type received struct {
	resp *pb.WatchResponse
	err  error
}

func (r *remote) open(_ context.Context, prefix string, after int64) (stream, error) {
	return &remoteStream{r: r, prefix: prefix, told: after, pause: minReconnect, silence: minSilence}, nil
}

func (s *remoteStream) next(ctx context.Context, wake <-chan struct{}) (news, error) {
	for {
		if s.conn == nil {
			if woke, err := s.connect(ctx, wake); woke || err != nil {
				return news{}, err
			}
		}
		select {
		case m := <-s.conn.in:
			s.asked, s.silence = time.Time{}, minSilence
			n, whole, err := s.take(m)
			if err != nil && !isTransient(err) {
				return news{}, err
			}
			if err != nil {
				s.disconnect()
				s.postpone()
			}
			if whole {
				return n, nil
			}
		case <-wake:
			// Whoever is owed an answer wakes the watch until it has one.
			if !s.asked.IsZero() && time.Since(s.asked) > s.silence {
				s.silence = min(2*s.silence, maxSilence)
				s.disconnect()
				s.postpone()
			}
			return news{}, nil
		case <-ctx.Done():
			return news{}, ctx.Err()
		}
	}
}

// take looks at one message and says whether it completes news.
func (s *remoteStream) take(m received) (n news, whole bool, err error) {
	resp := m.resp
	switch {
	case m.err != nil:
		return news{}, false, m.err
	case resp.CompactRevision != 0:
		return news{}, false, rpctypes.ErrGRPCCompacted
	case resp.Canceled:
		return news{}, false, canceled(resp.CancelReason)
	case resp.Created:
		s.pause = minReconnect
		return news{}, false, nil
	}
	s.part.events = append(s.part.events, resp.Events...)
	if resp.Fragment {
		return news{}, false, nil
	}
	n, s.part = s.part, news{}
	if len(n.events) > 0 {
		// The revision of a header may lie ahead of events that come with the next message.
		n.rev = n.events[len(n.events)-1].Kv.ModRevision
	} else {
		n.rev = resp.Header.Revision
	}
	s.told = max(s.told, n.rev)
	return n, true, nil
}

// canceled turns the reason of etcd for ending a watch back into the error it was made of.
func canceled(reason string) error {
	err := rpctypes.Error(errors.New(reason))
	if _, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return err
	}
	return status.Error(codes.Unavailable, reason)
}

// isTransient says that a new stream may succeed where this one failed.
func isTransient(err error) bool {
	switch code(err) {
	case codes.Unavailable, codes.Internal, codes.ResourceExhausted, codes.Unknown, codes.Aborted, codes.DeadlineExceeded,
		// A member that stops cancels its watches.
		codes.Canceled:
		return true
	}
	return false
}

// connect opens a stream, after a pause when the last one failed. It returns early when it is woken.
func (s *remoteStream) connect(ctx context.Context, wake <-chan struct{}) (woke bool, err error) {
	for {
		if woke, err := s.rest(ctx, wake); woke || err != nil {
			return woke, err
		}
		s.conn, err = s.start(ctx)
		switch {
		case err == nil:
			s.asked = time.Now() // that it is open
			return false, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case !isTransient(err):
			return false, err
		}
		s.postpone()
	}
}

// postpone begins the pause before a new attempt, which doubles until an attempt succeeds.
func (s *remoteStream) postpone() {
	s.retryAt = time.Now().Add(s.pause)
	s.pause = min(2*s.pause, maxReconnect)
}

// rest waits for the end of the pause.
func (s *remoteStream) rest(ctx context.Context, wake <-chan struct{}) (woke bool, err error) {
	left := time.Until(s.retryAt)
	if left <= 0 {
		return false, nil
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-t.C:
		return false, nil
	case <-wake:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (s *remoteStream) start(ctx context.Context) (*watchConn, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	st, err := s.r.watch.Watch(ctx, anySize)
	if err != nil {
		cancel()
		return nil, err
	}
	err = st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key:            firstKey(s.prefix),
		RangeEnd:       endOf(s.prefix),
		StartRevision:  s.told + 1,
		PrevKv:         true,
		ProgressNotify: true,
		Fragment:       true,
	}}})
	if err != nil {
		cancel()
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	c := &watchConn{stream: st, cancel: cancel, in: make(chan received)}
	c.wg.Go(func() { c.receive(ctx) })
	return c, nil
}

func (c *watchConn) receive(ctx context.Context) {
	for {
		resp, err := c.stream.Recv()
		select {
		case c.in <- received{resp, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (s *remoteStream) disconnect() {
	if s.conn == nil {
		return
	}
	s.conn.cancel()
	s.conn.wg.Wait()
	s.conn, s.part, s.asked = nil, news{}, time.Time{}
}

// complete has nothing to do: etcd was asked for the pairs before the changes.
func (s *remoteStream) complete(context.Context, news) error { return nil }

func (s *remoteStream) ask(context.Context) {
	if s.conn == nil {
		return
	}
	if s.asked.IsZero() {
		s.asked = time.Now()
	}
	// A stream that cannot be written to fails to be read as well, which is where it is noticed.
	_ = s.conn.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
		ProgressRequest: &pb.WatchProgressRequest{},
	}})
}

func (s *remoteStream) close() { s.disconnect() }
