// Package tracereport sends the records of hops of a node's agent to a server in another process. Records are gathered for a
// moment and sent together. While the server is away some are kept, and the oldest make room for new ones. Nothing runs while
// there is nothing to send.
package tracereport

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/internal/wait"
	"proa.dev/kinds/nodereport"
)

const (
	// batch is how many records are sent at a time, and delay how long the first of them waits for others.
	batch = nodereport.MaxRecords / 2
	delay = 200 * time.Millisecond
	// maxKept is how many records are kept at most.
	maxKept = 2000
	// refusedPause is how long nothing is recorded after a server has said that it does not take reports. It may be updated some day.
	refusedPause = 30 * time.Minute
)

// Reporter sends the records of one node.
type Reporter struct {
	node    string
	client  client.Writer
	log     *slog.Logger
	started time.Time
	// added says that there is something to send, full that there is enough for a report.
	added, full wait.Signal

	mu           sync.Mutex // guards what follows
	records      []hop.Record
	dropped      int64
	refusedUntil time.Time // until when records are not kept, because the server does not take them
}

// New returns a reporter; Run sends what Record gets.
func New(node string, c client.Writer, log *slog.Logger) *Reporter {
	return &Reporter{node: node, client: c, log: log, started: time.Now(), added: wait.NewSignal(), full: wait.NewSignal()}
}

// Record keeps a record to be sent, in place of an open record of the same work that was not sent yet. It does not block.
func (r *Reporter) Record(rec hop.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.refusedUntil) {
		return
	}
	for i := range r.records {
		if have := &r.records[i]; have.Open && have.UID == rec.UID && have.Rev == rec.Rev && have.Verb == rec.Verb &&
			have.Start.Equal(rec.Start) {
			*have = rec
			return
		}
	}
	r.records = append(r.records, rec)
	r.trim()
	if r.added.Send(); len(r.records) >= batch {
		r.full.Send()
	}
}

// trim drops the oldest records if there are too many.
func (r *Reporter) trim() {
	if more := len(r.records) - maxKept; more > 0 {
		r.records = slices.Delete(r.records, 0, more)
		r.dropped += int64(more)
	}
}

// Run sends records until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	backoff := wait.Backoff{First: time.Second, Max: time.Minute, Jitter: 0.5}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.added:
		}
		if !r.gather(ctx) {
			return
		}
		for {
			sent := r.take()
			if sent == nil {
				break
			}
			pause := r.send(ctx, sent, &backoff)
			if wait.Sleep(ctx, pause) != nil {
				return
			}
		}
	}
}

// gather waits for more records. It reports false if ctx has ended.
func (r *Reporter) gather(ctx context.Context) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-r.full:
	}
	return true
}

// taken are records that are being sent.
type taken struct {
	records []hop.Record
	dropped int64
}

// take removes the oldest records; it returns nil if there are none.
func (r *Reporter) take() *taken {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == 0 {
		return nil
	}
	n := min(len(r.records), batch)
	out := &taken{slices.Clone(r.records[:n]), r.dropped}
	r.records, r.dropped = slices.Delete(r.records, 0, n), 0
	return out
}

// send sends records, and returns how long to wait before the next report.
func (r *Reporter) send(ctx context.Context, t *taken, backoff *wait.Backoff) time.Duration {
	report := &nodereport.NodeReport{Node: r.node, AgentStarted: r.started.Round(0), Dropped: t.dropped}
	for i := range t.records {
		report.Records = append(report.Records, nodereport.OfHop(&t.records[i]))
	}
	report.Sent = time.Now().Round(0)
	_, err := r.client.Create(ctx, nodereport.Resource(), report)
	switch {
	case err == nil:
		backoff.Reset()
		return 0
	case ctx.Err() != nil:
		return 0
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		r.log.DebugContext(ctx, "the server takes no records of this node", "err", err, "again", refusedPause)
		r.refuse()
		return 0
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		r.log.DebugContext(ctx, "the server has refused records of this node", "err", err)
		r.lose(t)
		return 0
	}
	r.restore(t)
	pause := backoff.Next()
	if seconds, asks := apierrors.SuggestsClientDelay(err); asks {
		pause = max(pause, min(time.Duration(seconds)*time.Second, time.Minute))
	}
	return pause
}

// refuse drops all records, and those that come for a while.
func (r *Reporter) refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records, r.dropped, r.refusedUntil = nil, 0, time.Now().Add(refusedPause)
}

// restore keeps records that could not be sent, before those that came since.
func (r *Reporter) restore(t *taken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records, r.dropped = append(t.records, r.records...), r.dropped+t.dropped
	r.trim()
}

// lose counts records that are not sent again.
func (r *Reporter) lose(t *taken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped += t.dropped + int64(len(t.records))
}
