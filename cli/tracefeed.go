package cli

import (
	"context"
	"encoding/json"
	"time"

	"proa.dev/client/apireader"
	"proa.dev/internal/wait"
	"proa.dev/trace"
)

const (
	// feedInterval is how often a trace that is followed is drawn, and how often it is read from a server that cannot be watched.
	feedInterval = time.Second / 2
	// readAgain is after how long without a change a trace is read all the same: its sentences say how long work takes that goes on.
	readAgain = 5 * time.Second
)

// traceFeed gives the newest state of a trace again and again. It watches the trace; if the server does not let it, it reads the trace
// instead.
type traceFeed struct {
	reader *traceReader
	live   bool
	isRead bool                // the trace was read once
	polls  bool                // it cannot be watched
	events <-chan *trace.Trace // of the watch; closed when it has ended
	stop   context.CancelFunc
	last   *trace.Trace
	err    error     // of the last read
	at     time.Time // when the trace was last read, or an event came
}

// newTraceFeed returns a feed. The caller calls stop at the end.
func newTraceFeed(r *traceReader, live bool) *traceFeed {
	return &traceFeed{reader: r, live: live, stop: func() {}}
}

// watch begins to watch the trace.
func (f *traceFeed) watch(ctx context.Context) {
	ctx, f.stop = context.WithCancel(ctx)
	events := make(chan *trace.Trace)
	f.events = events
	go func() {
		defer close(events)
		f.reader.watch(ctx, func(t *trace.Trace) bool {
			select {
			case events <- t:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
}

// next returns the trace: at once the first time, and then when it has changed or some time has gone by. Work that goes on has taken longer
// each time. When ctx ends it returns what there is.
func (f *traceFeed) next(ctx context.Context) (*trace.Trace, error) {
	if !f.isRead {
		f.isRead = true
		return f.read(ctx)
	}
	if f.polls {
		if err := wait.Sleep(ctx, feedInterval); err != nil {
			return f.current(err)
		}
		return f.read(ctx)
	}
	if f.events == nil {
		f.watch(ctx)
	}
	select {
	case t, isOpen := <-f.events:
		if !isOpen {
			f.polls = true
			return f.next(ctx)
		}
		f.last, f.at = t, time.Now()
	case <-ctx.Done():
		return f.current(ctx.Err())
	case <-time.After(feedInterval):
		if time.Since(f.at) >= readAgain {
			return f.read(ctx)
		}
	}
	return f.current(f.err)
}

// current returns the trace as it is now, or an error if there is none.
func (f *traceFeed) current(err error) (*trace.Trace, error) {
	if f.last == nil {
		return nil, err
	}
	return grown(f.last, time.Since(f.at)), nil
}

// read reads the trace from the server.
func (f *traceFeed) read(ctx context.Context) (*trace.Trace, error) {
	t, err := f.reader.read(ctx)
	if f.at, f.err = time.Now(), err; err == nil {
		f.last = t
	}
	return t, err
}

// whole returns a trace with what a watch does not show: the bodies, if these are wanted.
func (f *traceFeed) whole(ctx context.Context, t *trace.Trace) (*trace.Trace, error) {
	if !f.live || !f.reader.wire {
		return t, nil
	}
	return f.reader.read(ctx)
}

// grown returns a copy of a trace as it is some time later, if nothing has happened.
func grown(t *trace.Trace, d time.Duration) *trace.Trace {
	out := t.DeepCopy()
	if out.State == trace.Running {
		out.Took += d
	}
	for i := range out.Spans {
		if s := &out.Spans[i]; s.Open {
			s.Took += d
		}
	}
	return out
}

// watch watches the trace, and calls each with every new state of it until that returns false or the watch ends.
func (r *traceReader) watch(ctx context.Context, each func(*trace.Trace) bool) {
	namespace, name := r.name()
	for ctx.Err() == nil {
		began := time.Now()
		err := r.reader.Watch(ctx, trace.TracesResource(), namespace, name, func(ev apireader.Event) bool {
			t := &trace.Trace{}
			if ev.Type != "ADDED" && ev.Type != "MODIFIED" || json.Unmarshal(ev.Object, t) != nil {
				return true
			}
			return each(t)
		})
		if err != nil || time.Since(began) < readAgain {
			return // it is read instead
		}
	}
}
