package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"proa.dev/internal/wait"
)

const (
	// probeInterval is how often the endpoint in use is asked for the current revision, which it knows only with a quorum.
	probeInterval = 300 * time.Millisecond
	// patience is how long an endpoint may take to answer before the others are asked as well. Requests go to the first that
	// answers, and reads and watches in progress too. Writes are given up when the one before has been silent for twice as long.
	patience = 500 * time.Millisecond
	// retryPause is the pause before a request or a probe that failed at once is sent again.
	retryPause = 20 * time.Millisecond
	// lostAfter is how long a write that was sent before another leader was elected may still take to be answered.
	lostAfter = 100 * time.Millisecond
	// search is how long one search for an endpoint that answers takes at most.
	search = 10 * time.Second
)

// endpoint is the connection to one member of an etcd in other processes.
type endpoint struct {
	url    string
	client *clientv3.Client // nil in tests
	kv     pb.KVClient
	lease  pb.LeaseClient
	watch  pb.WatchClient
}

// isDown reports whether the last attempt to connect has failed, so that nothing can be sent.
func (e *endpoint) isDown() bool {
	return e.client != nil && e.client.ActiveConnection().GetState() == connectivity.TransientFailure
}

// probe asks the member for the revision and the term of a quorum.
func (e *endpoint) probe(ctx context.Context) (term uint64, err error) {
	resp, err := e.kv.Range(clientv3.WithRequireLeader(ctx), &pb.RangeRequest{Key: []byte{0}, CountOnly: true})
	if err != nil {
		return 0, err
	}
	return resp.Header.RaftTerm, nil
}

// endpoints are the members of one etcd. All requests go to one of them at a time, which is replaced when it does not answer and
// another one does: a member that is frozen or cut off keeps its connections, and would keep every request that it gets.
type endpoints struct {
	all     []*endpoint
	inUse   atomic.Pointer[endpoint]
	suspect wait.Signal // a request has failed
	log     *slog.Logger

	mu    sync.Mutex // guards what follows
	calls map[*call]struct{}
	term  uint64
}

// call is a request or a watch in progress.
type call struct {
	at     *endpoint
	began  time.Time
	kind   callKind
	cancel context.CancelFunc
}

type callKind int

const (
	// repeatable requests change nothing, or the same when they are made twice. Watches are among them.
	repeatable callKind = iota
	// conditional requests are transactions, of which it is unknown whether they were made when there was no answer.
	conditional
)

func newEndpoints(log *slog.Logger, all ...*endpoint) *endpoints {
	g := &endpoints{all: all, suspect: wait.NewSignal(), log: log, calls: map[*call]struct{}{}}
	g.inUse.Store(all[0])
	return g
}

// begin registers a call at the endpoint in use. The caller must call end.
func (g *endpoints) begin(ctx context.Context, kind callKind) (_ context.Context, at *endpoint, end func()) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &call{at: g.inUse.Load(), began: time.Now(), kind: kind, cancel: cancel}
	g.calls[c] = struct{}{}
	return ctx, c.at, func() {
		cancel()
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.calls, c)
	}
}

// giveUp ends the calls for which the condition holds.
func (g *endpoints) giveUp(holds func(*call) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.calls {
		if holds(c) {
			c.cancel()
		}
	}
}

// do makes a request at the endpoint in use. What failed without having been made is tried again until ctx ends, at another
// endpoint as soon as one is in use; what may have been made only if it is repeatable.
func (g *endpoints) do(ctx context.Context, kind callKind, request func(context.Context, *endpoint) error) error {
	for {
		err := g.try(ctx, kind, request)
		if err == nil || ctx.Err() != nil || code(err) != codes.Unavailable && !errors.As(err, new(unavailable)) {
			return err
		}
		g.suspect.Send()
		if kind != repeatable && !isNotMade(err) {
			return err
		}
		if wait.Sleep(ctx, retryPause) != nil {
			return err
		}
	}
}

// errDown is the error of a request that was not sent.
var errDown = errors.New("there is no connection to etcd")

func (g *endpoints) try(ctx context.Context, kind callKind, request func(context.Context, *endpoint) error) error {
	try, at, end := g.begin(ctx, kind)
	defer end()
	if len(g.all) > 1 && at.isDown() {
		return unavailable{errDown}
	}
	err := request(try, at)
	if err != nil && try.Err() != nil && ctx.Err() == nil {
		return unavailable{errors.New("the member of etcd at " + at.url + " does not answer, or has lost its leader")}
	}
	return err
}

// isNotMade reports whether a request failed before it could have changed anything.
func isNotMade(err error) bool {
	return errors.Is(err, errDown) || rpctypes.ErrorDesc(err) == rpctypes.ErrNoLeader.Error()
}

// run replaces the endpoint in use whenever it does not answer, until ctx ends.
func (g *endpoints) run(ctx context.Context) {
	timer := time.NewTimer(probeInterval)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-timer.C:
		case <-g.suspect:
		case <-ctx.Done():
			return
		}
		g.check(ctx)
		timer.Reset(probeInterval)
	}
}

// check asks the endpoint in use, and if that does not answer all of them until one does.
func (g *endpoints) check(ctx context.Context) {
	old := g.inUse.Load()
	began := time.Now()
	first, stop := context.WithTimeout(ctx, patience)
	term, err := old.probe(first)
	stop()
	if err == nil {
		g.answered(ctx, old, term)
		return
	}
	if len(g.all) == 1 {
		_ = wait.Sleep(ctx, retryPause)
		return
	}
	ctx, stop = context.WithTimeout(ctx, search)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	answers := make(chan answer, len(g.all))
	for _, e := range g.all {
		wg.Go(func() { answers <- e.probeUntilAnswered(ctx) })
	}
	grace := time.NewTimer(time.Hour)
	defer grace.Stop()
	for range g.all {
		select {
		case a := <-answers:
			switch {
			case a.err != nil:
			case a.from == old: // it was only slow
				if g.inUse.Load() == old {
					g.answered(ctx, old, a.term)
				}
				return
			case g.inUse.Load() == old:
				g.inUse.Store(a.from)
				g.log.WarnContext(ctx, "a member of etcd does not answer; requests go to another one", "member", old.url, "to", a.from.url,
					"err", err)
				g.giveUp(func(c *call) bool { return c.at == old && c.kind == repeatable })
				g.answered(ctx, a.from, a.term)
				grace.Reset(2*patience - time.Since(began))
			}
		case <-grace.C:
			g.giveUp(func(c *call) bool { return c.at == old })
			return
		}
	}
	if g.inUse.Load() != old { // it has answered with an error all the time
		g.giveUp(func(c *call) bool { return c.at == old })
	}
}

// answer is what came of the probes of one endpoint.
type answer struct {
	from *endpoint
	term uint64
	err  error
}

// probeUntilAnswered repeats a probe that fails, until ctx ends.
func (e *endpoint) probeUntilAnswered(ctx context.Context) answer {
	for {
		once, stop := context.WithTimeout(ctx, 2*patience)
		term, err := e.probe(once)
		stop()
		if err == nil || wait.Sleep(ctx, retryPause) != nil {
			return answer{e, term, err}
		}
	}
}

// answered takes note of the term in which a probe was answered. When it is another than before, writes that were sent to the leader
// of the term before may be lost, without anybody telling their callers.
func (g *endpoints) answered(ctx context.Context, by *endpoint, term uint64) {
	g.mu.Lock()
	changed := g.term != 0 && g.term != term
	g.term = term
	g.mu.Unlock()
	if !changed {
		return
	}
	g.log.InfoContext(ctx, "etcd has elected another leader", "term", term, "member", by.url)
	at := time.Now()
	time.AfterFunc(lostAfter, func() { g.giveUp(func(c *call) bool { return c.kind == conditional && c.began.Before(at) }) })
}
