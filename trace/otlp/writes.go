package otlp

import (
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/trace"
)

// maxWrites is how many writes are remembered, so that what they cause gets their trace ID.
const maxWrites = 32768

// writeKey names a write: the object, and the revision that it got.
type writeKey struct {
	uid types.UID
	rev int64
}

// write is what is remembered of a write.
type write struct {
	spanID      string // as in package trace
	cause       writeKey
	traceParent string
	traceID     TraceID
	hasTraceID  bool
}

// writeIndex remembers the latest writes. The zero value is ready to use.
type writeIndex struct {
	writes map[writeKey]*write
	ring   []writeKey // the keys, the oldest at next once it is full
	next   int
}

// register remembers the writes among records. It returns those that can be exported, and those that are held for the next batch: their
// cause is not known yet, because a watch may be faster than the record of the write. The first records were held before and are not held
// again, and neither is any if no more records come.
func (x *writeIndex) register(records []hop.Record, heldBefore int, more bool) (ready, held []hop.Record) {
	for i := range records {
		x.add(&records[i])
	}
	for i := range records {
		cause := causeOf(&records[i])
		if _, known := x.writes[cause]; more && i >= heldBefore && cause.uid != "" && !known {
			held = append(held, records[i])
		} else {
			ready = append(ready, records[i])
		}
	}
	return ready, held
}

func causeOf(r *hop.Record) writeKey { return writeKey{r.CauseUID, r.CauseRev} }

// add remembers a write that was committed. A later update that changed nothing has the same revision and does not count.
func (x *writeIndex) add(r *hop.Record) {
	key := writeKey{r.UID, r.Rev}
	if _, known := x.writes[key]; known || !r.IsWrite() || r.UID == "" || r.Rev == 0 {
		return
	}
	if x.writes == nil {
		x.writes = map[writeKey]*write{}
	}
	if len(x.ring) < maxWrites {
		x.ring = append(x.ring, key)
	} else {
		delete(x.writes, x.ring[x.next])
		x.ring[x.next] = key
		x.next = (x.next + 1) % maxWrites
	}
	w := &write{spanID: trace.RecordID(r), cause: causeOf(r)}
	if r.Origin != nil {
		w.traceParent = r.Origin.TraceParent
	}
	x.writes[key] = w
}

// traceID returns the trace ID of a write: that of the write that it goes back to. A write that is not remembered counts as one without a
// cause, which is right for what a client of another server has written.
func (x *writeIndex) traceID(key writeKey) TraceID {
	w := x.writes[key]
	switch {
	case w == nil:
		return WriteTraceID(key.uid, key.rev)
	case w.hasTraceID:
		return w.traceID
	}
	w.traceID, w.hasTraceID = rootTraceID(key.uid, key.rev, w.traceParent), true // also ends a circle
	if w.cause.uid != "" {
		w.traceID = x.traceID(w.cause)
	}
	return w.traceID
}

// recordTraceID returns the trace ID of a record.
func (x *writeIndex) recordTraceID(r *hop.Record) TraceID {
	own := writeKey{r.UID, r.Rev}
	cause := causeOf(r)
	switch {
	case cause.uid != "":
		return x.traceID(cause)
	case x.writes[own] != nil: // the write itself, or work about the object as that write left it
		return x.traceID(own)
	}
	id := hashTraceID("span " + trace.RecordID(r)) // a write that was refused, or work that nothing is known to have caused
	if r.Origin != nil {
		if p, ok := hop.ParseTraceParent(r.Origin.TraceParent); ok {
			id = p.TraceID
		}
	}
	return id
}

// addSpans adds the spans of a record to a batch.
func (x *writeIndex) addSpans(out *batch, r *hop.Record) {
	id := x.recordTraceID(r)
	for i, from := range trace.RecordSpans(r, nil) {
		s := newSpan(&from, id)
		if node := nodeOf(&from); node != "" && out.nodeUID != nil {
			s.text("k8s.node.uid", out.nodeUID(node))
		}
		if i == 0 && r.CauseUID != "" {
			if cause := x.writes[causeOf(r)]; cause != nil {
				s.Links = []link{{TraceID: id, SpanID: spanID(cause.spanID), Flags: sampledFlags}}
			}
			s.text("proa.cause.uid", string(r.CauseUID))
			s.number("proa.cause.revision", r.CauseRev)
		}
		out.add(r.Process, s)
	}
}
