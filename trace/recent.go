package trace

import (
	"slices"
	"time"

	"proa.dev/hop"
)

// IsByUser tells whether a record is of a write that begins a trace: somebody outside of the system made it, and may make it.
func IsByUser(r *hop.Record) bool { return isByUser(r) && !isUnauthorized(r) && r.Name != "" }

// Recent returns the traces of the objects that users have written lately, the newest first, without spans and with what the reader may
// see: at most limit of those whose object is in a namespace, or in any if that is empty, and which he may get.
func (x *Index) Recent(namespace string, limit int, now time.Time, reader Reader) []*Trace {
	var out []*Trace
	seen := map[Ref]bool{}
	for i := len(x.records) - 1; i >= 0 && len(out) < limit; i-- {
		r := x.records[i]
		ref := refOf(r).withoutUID()
		if !isByUser(r) || isUnauthorized(r) || seen[ref] {
			continue
		}
		seen[ref] = true
		if r.Name == "" || namespace != "" && NamespaceOf(ref) != namespace || !reader.MayGet(ref) {
			continue
		}
		if t := x.Trace(ref, now); t != nil {
			t.Hide(reader)
			t.Spans, t.Critical = nil, nil
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b *Trace) int { return b.Start.Compare(a.Start) })
	return out
}
