package otlp

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/hop"
	"proa.dev/internal/wait"
)

const (
	// queueSize is how many records wait for the exporter at most.
	queueSize = 4096
	// maxBatch is how many spans are sent at a time, but for those of the last record, and batchTime how long the first of them waits.
	maxBatch  = 512
	batchTime = 2 * time.Second
	// maxTries is how often a batch is sent, firstPause the pause after the first failure, and lastTry how long a batch may take
	// when the process ends; after that time no other one is begun.
	maxTries   = 5
	firstPause = time.Second
	lastTry    = 2 * time.Second
	// logEvery is how often dropped spans are logged at most.
	logEvery = time.Minute
)

// Exporter sends every record of a Recorder to an OTLP receiver, in batches. It never makes whoever adds a record wait: when the receiver
// takes them more slowly than they come, records are dropped and counted.
type Exporter struct {
	records <-chan hop.Record
	stop    func()
	cluster func(context.Context) string
	nodeUID func(name string) string
	log     *slog.Logger
	sender  sender

	sent, dropped atomic.Uint64

	// What follows belongs to Run.
	writes   writeIndex
	err      error     // the last one since dropped spans were logged
	logged   time.Time // when that was
	reported uint64    // how many dropped spans were logged
}

// ExporterConfig says what an Exporter sends, and where.
type ExporterConfig struct {
	Endpoint Endpoint
	Records  *hop.Recorder
	// ClusterUID returns the UID of the namespace kube-system, or nothing when it is not known yet.
	ClusterUID func(context.Context) string
	// NodeUID returns the UID of the Node that has a name at present, or nothing when there is none. It is called for each span of work on
	// a node, and must not wait.
	NodeUID func(name string) string
	Log     *slog.Logger
}

// NewExporter returns an exporter that follows the records from now on, and sends them when Run is called.
func NewExporter(c ExporterConfig) (*Exporter, error) {
	s, err := c.Endpoint.open()
	if err != nil {
		return nil, err
	}
	return newExporter(c, s), nil
}

func newExporter(c ExporterConfig, s sender) *Exporter {
	e := &Exporter{cluster: c.ClusterUID, nodeUID: c.NodeUID, log: c.Log, sender: s}
	e.records, e.stop = c.Records.Follow(queueSize, func(r *hop.Record) { e.dropped.Add(uint64(countSpans(r))) })
	return e
}

// Collectors returns the metrics of the exporter.
func (e *Exporter) Collectors() []prometheus.Collector {
	counter := func(name, help string, value *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value.Load()) })
	}
	return []prometheus.Collector{
		counter("proa_otlp_spans_sent_total", "Spans that the OpenTelemetry receiver has taken.", &e.sent),
		counter("proa_otlp_spans_dropped_total",
			"Spans that were not sent, because the OpenTelemetry receiver was too slow, could not be reached or refused them.", &e.dropped),
	}
}

// Run exports until ctx ends, and then sends what waits, once. A nil Exporter does nothing.
func (e *Exporter) Run(ctx context.Context) {
	if e == nil {
		return
	}
	defer e.stop()
	defer e.sender.close()
	var held []hop.Record
	for cluster, more := e.cluster(ctx), true; more; {
		var got []hop.Record
		if got, more = collect(ctx, e.records, held); len(got) == 0 {
			continue
		}
		if cluster == "" {
			cluster = e.cluster(ctx)
		}
		var ready []hop.Record
		ready, held = e.writes.register(got, len(held), more)
		e.sendAll(ctx, cluster, ready)
		e.logDropped()
	}
}

// sendAll sends records, in several batches when there are too many for one. When ctx has ended before, which is when the most may have
// gathered, those are dropped that are left after a little time.
func (e *Exporter) sendAll(ctx context.Context, cluster string, records []hop.Record) {
	begin, isLast := time.Now(), ctx.Err() != nil
	out := batch{cluster: cluster, nodeUID: e.nodeUID}
	for i := range records {
		e.writes.addSpans(&out, &records[i])
		if out.count == 0 || out.count < maxBatch && i < len(records)-1 {
			continue
		}
		if isLast && time.Since(begin) >= lastTry {
			e.dropped.Add(uint64(out.count))
			e.err = errors.New("the process ended before they could be sent")
		} else {
			e.send(ctx, &out)
		}
		out = batch{cluster: cluster, nodeUID: e.nodeUID}
	}
}

// collect waits for records and returns them behind those that were held before: when they make a batch, or when the first has waited
// long enough. It reports whether more may come.
func collect(ctx context.Context, records <-chan hop.Record, held []hop.Record) (batch []hop.Record, more bool) {
	batch = append(batch, held...)
	spans := 0
	if len(batch) == 0 {
		select {
		case r := <-records:
			batch, spans = append(batch, r), countSpans(&r)
		case <-ctx.Done():
		}
	}
	timer := time.NewTimer(batchTime)
	defer timer.Stop()
	for spans < maxBatch && ctx.Err() == nil {
		select {
		case r := <-records:
			batch, spans = append(batch, r), spans+countSpans(&r)
		case <-timer.C:
			return batch, true
		case <-ctx.Done():
		}
	}
	for ctx.Err() != nil {
		select {
		case r := <-records:
			batch = append(batch, r)
		default:
			return batch, false
		}
	}
	return batch, true
}

// countSpans returns how many spans a record becomes at most.
func countSpans(r *hop.Record) int {
	n := 1 + len(r.Steps)
	for _, d := range r.Took {
		if d > 0 {
			n++
		}
	}
	return n
}

// send sends a batch, and counts what became of its spans.
func (e *Exporter) send(ctx context.Context, b *batch) {
	err := e.deliver(ctx, b.request())
	lost := 0
	var partial *partialError
	switch {
	case errors.As(err, &partial):
		lost = int(min(partial.spans, int64(b.count)))
	case err != nil:
		lost = b.count
	}
	e.sent.Add(uint64(b.count - lost))
	e.dropped.Add(uint64(lost))
	if err != nil {
		e.err = err
	}
}

// deliver sends a batch until the receiver takes it. It gives up when the receiver refuses it for good, after the last try, and after
// one more try when ctx ends.
func (e *Exporter) deliver(ctx context.Context, r *exportRequest) error {
	pause := wait.Backoff{First: firstPause, Max: maxPause, Jitter: 0.2}
	for try := 1; ; try++ {
		err := e.sendOnce(ctx, r)
		if !isTemporary(err) || try == maxTries || ctx.Err() != nil {
			return err
		}
		d := pause.Next()
		var refused *refusedError
		if errors.As(err, &refused) && refused.retryAfter > 0 {
			d = refused.retryAfter
		}
		if wait.Sleep(ctx, d) != nil {
			return e.sendOnce(ctx, r)
		}
	}
}

// sendOnce sends a batch once. When ctx ends, there is a little time left to finish.
func (e *Exporter) sendOnce(ctx context.Context, r *exportRequest) error {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastTry, cancel) })()
	return e.sender.send(sending, r)
}

// isTemporary reports whether a batch that could not be sent may be sent later: the receiver has said so, or was not reached.
func isTemporary(err error) bool {
	var refused *refusedError
	var partial *partialError
	switch {
	case err == nil, errors.As(err, &partial):
		return false
	case errors.As(err, &refused):
		return refused.temporary
	}
	return true
}

// logDropped says how many spans were dropped since it last did, if that is long enough ago.
func (e *Exporter) logDropped() {
	dropped := e.dropped.Load()
	if dropped == e.reported || !e.logged.IsZero() && time.Since(e.logged) < logEvery {
		return
	}
	err := e.err
	if err == nil {
		err = errors.New("the receiver takes them more slowly than they come")
	}
	e.log.Warn("spans were not sent to the OTLP receiver", "spans", dropped-e.reported, "err", err)
	e.logged, e.reported, e.err = time.Now(), dropped, nil
}
