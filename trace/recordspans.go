package trace

import "proa.dev/hop"

// RecordSpans returns the span of one record that has ended, with those of its hops and steps, as they are in the trace that the record
// is a part of. The first is that of the record itself; links are the IDs of the spans that caused it.
func RecordSpans(r *hop.Record, links []string) []Span {
	return spansOf(newItem(r, true, r.Start, r.End()), links)
}

// RecordID returns the ID of the first span of RecordSpans.
func RecordID(r *hop.Record) string { return recordID(r) }
