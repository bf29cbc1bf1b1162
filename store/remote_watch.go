package store

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"proa.dev/internal/wait"
)

const (
	// minReconnect and maxReconnect bound the back-off before a broken watch is opened again.
	minReconnect = 20 * time.Millisecond
	maxReconnect = 500 * time.Millisecond
	// A watch that gets no response for a time between minSilence and maxSilence after it was opened or asked for its
	// progress counts as broken: its member may hang or be cut off while others work. The time doubles, so that a slow
	// member can still succeed.
	minSilence = 2 * time.Second
	maxSilence = 30 * time.Second
)

// remoteStream is a watch on a gRPC stream of its own, because etcd answers a progress request only when all watches of
// a stream are up to date. When the stream breaks, it opens another one after the last revision that was delivered
// completely, so that no event is delivered twice or lost.
type remoteStream struct {
	r      *remote
	prefix string
	// delivered is the revision up to which all events have been delivered.
	delivered int64
	// part collects the fragments of one response.
	part eventBatch

	conn *watchConn
	// retryAt is when a stream is opened again after the last one failed. Waking the watch does not postpone it.
	retryAt time.Time
	backoff wait.Backoff
	// asked is when the response that is missing was requested, zero if none is missing, and silence how long it may
	// take.
	asked   time.Time
	silence time.Duration
}

// watchConn is one gRPC stream with the goroutine that receives from it.
type watchConn struct {
	stream pb.Watch_WatchClient
	cancel func()
	in     chan received
	// left is closed when nobody receives from in any more. The stream may end before, when its member does not answer.
	left chan struct{}
	wg   sync.WaitGroup
}

type received struct {
	resp *pb.WatchResponse
	err  error
}

func (r *remote) open(_ context.Context, prefix string, after int64) (stream, error) {
	return &remoteStream{r: r, prefix: prefix, delivered: after, backoff: wait.Backoff{First: minReconnect, Max: maxReconnect},
		silence: minSilence}, nil
}

func (s *remoteStream) next(ctx context.Context, wake <-chan struct{}) (eventBatch, error) {
	for {
		if s.conn == nil {
			if woke, err := s.connect(ctx, wake); woke || err != nil {
				return eventBatch{}, err
			}
		}
		select {
		case m := <-s.conn.in:
			s.asked, s.silence = time.Time{}, minSilence
			before := s.delivered
			n, whole, err := s.take(m)
			if whole {
				if err = s.readPrevious(ctx, n); err != nil {
					s.delivered, whole = before, false // the next stream delivers it again
				}
			}
			if ctx.Err() != nil {
				return eventBatch{}, ctx.Err()
			}
			if err != nil && !isTransient(err) {
				return eventBatch{}, err
			}
			if err != nil {
				s.r.suspect.Send()
				s.disconnect()
				s.postpone()
			}
			if whole {
				return n, nil
			}
		case <-wake:
			// The caller of Progress wakes the watch until it has a response.
			if !s.asked.IsZero() && time.Since(s.asked) > s.silence {
				s.silence = min(2*s.silence, maxSilence)
				s.disconnect()
				s.postpone()
			}
			return eventBatch{}, nil
		case <-ctx.Done():
			return eventBatch{}, ctx.Err()
		}
	}
}

// take handles one message, and reports whether it completes a batch of events.
func (s *remoteStream) take(m received) (n eventBatch, whole bool, err error) {
	resp := m.resp
	switch {
	case m.err != nil:
		return eventBatch{}, false, m.err
	case resp.CompactRevision != 0:
		return eventBatch{}, false, rpctypes.ErrGRPCCompacted
	case resp.Canceled:
		return eventBatch{}, false, canceled(resp.CancelReason)
	case resp.Created:
		s.backoff.Reset()
		return eventBatch{}, false, nil
	}
	s.part.events = append(s.part.events, resp.Events...)
	if resp.Fragment {
		return eventBatch{}, false, nil
	}
	n, s.part = s.part, eventBatch{}
	if len(n.events) > 0 {
		// The revision of a header may lie ahead of events that come with the next message.
		n.rev = n.events[len(n.events)-1].Kv.ModRevision
	} else {
		n.rev = resp.Header.Revision
	}
	s.delivered = max(s.delivered, n.rev)
	return n, true, nil
}

// readPrevious reads the previous pairs that etcd has left out, although it was asked for them: it does so for events that it finds before
// it has finished to create the watch. If a pair has been compacted, the error says so.
func (s *remoteStream) readPrevious(ctx context.Context, n eventBatch) error {
	for _, ev := range n.events {
		if ev.PrevKv != nil || isCreate(ev) {
			continue
		}
		readCtx, cancel := context.WithTimeout(ctx, minSilence)
		p, err := s.r.read(readCtx, span{key: ev.Kv.Key, rev: ev.Kv.ModRevision - 1})
		cancel()
		if err != nil {
			return err
		}
		if len(p.kvs) > 0 {
			ev.PrevKv = p.kvs[0]
		}
	}
	return nil
}

// canceled turns the text with which etcd has canceled a watch back into the error it was made of.
func canceled(reason string) error {
	err := rpctypes.Error(errors.New(reason))
	if _, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return err
	}
	return status.Error(codes.Unavailable, reason)
}

// isTransient reports whether a new stream may succeed after this error.
func isTransient(err error) bool {
	switch code(err) {
	case codes.Unavailable, codes.Internal, codes.ResourceExhausted, codes.Unknown, codes.Aborted, codes.DeadlineExceeded,
		// A member that stops cancels its watches.
		codes.Canceled:
		return true
	}
	return false
}

// connect opens a stream, after a back-off if the last one failed. It returns early when it is woken.
func (s *remoteStream) connect(ctx context.Context, wake <-chan struct{}) (woke bool, err error) {
	for {
		if woke, err := s.waitForRetry(ctx, wake); woke || err != nil {
			return woke, err
		}
		s.conn, err = s.start(ctx)
		switch {
		case err == nil:
			s.asked = time.Now() // a response that the watch is open is missing
			return false, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case !isTransient(err):
			return false, err
		}
		s.postpone()
	}
}

// postpone sets the time of the next attempt. The back-off doubles until an attempt succeeds.
func (s *remoteStream) postpone() { s.retryAt = time.Now().Add(s.backoff.Next()) }

// waitForRetry waits until the next attempt is due.
func (s *remoteStream) waitForRetry(ctx context.Context, wake <-chan struct{}) (woke bool, err error) {
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
	ctx, at, cancel := s.r.begin(ctx, repeatable)
	st, err := at.watch.Watch(ctx, anySize)
	if err != nil {
		s.r.suspect.Send()
		cancel()
		return nil, err
	}
	err = st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key:            firstKey(s.prefix),
		RangeEnd:       endOf(s.prefix),
		StartRevision:  s.delivered + 1,
		PrevKv:         true,
		ProgressNotify: true,
		Fragment:       true,
	}}})
	if err != nil {
		cancel()
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	c := &watchConn{stream: st, cancel: cancel, in: make(chan received), left: make(chan struct{})}
	c.wg.Go(c.receive)
	return c, nil
}

func (c *watchConn) receive() {
	for {
		resp, err := c.stream.Recv()
		select {
		case c.in <- received{resp, err}:
		case <-c.left:
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
	close(s.conn.left)
	s.conn.wg.Wait()
	s.conn, s.part, s.asked = nil, eventBatch{}, time.Time{}
}

// complete does nothing: next has the previous pairs.
func (s *remoteStream) complete(context.Context, eventBatch) error { return nil }

func (s *remoteStream) ask(context.Context) {
	if s.conn == nil {
		return
	}
	if s.asked.IsZero() {
		s.asked = time.Now()
	}
	// An error is ignored: reading from the stream then fails, too.
	_ = s.conn.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
		ProgressRequest: &pb.WatchProgressRequest{},
	}})
}

func (s *remoteStream) close() { s.disconnect() }
