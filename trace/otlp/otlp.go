// Package otlp exports traces in the OpenTelemetry protocol, OTLP: as JSON, by HTTP to a collector or Jaeger, and all the time, as an
// Exporter that follows the recorder of a server. It reads traces and records alone, and knows no cluster.
package otlp

import (
	"encoding/json"
	"fmt"
	"strings"

	"proa.dev/hop"
	"proa.dev/trace"
)

// JSON returns a trace as an ExportTraceServiceRequest in OTLP/JSON, which collectors, Jaeger and Perfetto's importers read. All spans that
// go back to one write have one trace ID, so a trace of an object that was changed several times has several.
func JSON(t *trace.Trace) ([]byte, error) {
	body, err := json.Marshal(batchOf(t))
	if err != nil {
		return nil, fmt.Errorf("encode the trace for OTLP: %w", err)
	}
	return body, nil
}

// batchOf turns a whole trace into spans of OTLP.
func batchOf(t *trace.Trace) *exportRequest {
	c := converter{cluster: string(t.ClusterUID), traces: traceIDs(t.Spans)}
	var out batch
	out.cluster = c.cluster
	for i := range t.Spans {
		s := c.span(&t.Spans[i])
		if i == 0 {
			addMilestones(&s, t)
		}
		out.add(t.Spans[i].Process, s)
	}
	return out.request()
}

// addMilestones adds what is known of the whole trace to its first span.
func addMilestones(s *span, t *trace.Trace) {
	s.text("proa.command", t.Command)
	s.text("proa.summary", t.Summary)
	for _, m := range t.Milestones {
		s.Events = append(s.Events, event{Time: timestamp(t.Start.Add(m.At)), Name: cut(m.Name)})
	}
}

// traceIDs returns the trace ID of each span, by its ID: that of the write which a span goes back to by its parent and its first link.
func traceIDs(spans []trace.Span) map[string]TraceID {
	byID := make(map[string]*trace.Span, len(spans))
	for i := range spans {
		byID[spans[i].ID] = &spans[i]
	}
	out := make(map[string]TraceID, len(spans))
	var find func(s *trace.Span, depth int) TraceID
	find = func(s *trace.Span, depth int) TraceID {
		if id, ok := out[s.ID]; ok {
			return id
		}
		id := rootTraceID(s)
		if from := byID[causeOf(s)]; from != nil && depth < maxDepth {
			out[s.ID] = id // ends a circle, which a wrong trace may have
			id = find(from, depth+1)
		}
		out[s.ID] = id
		return id
	}
	for i := range spans {
		find(&spans[i], 0)
	}
	return out
}

// maxDepth is how many causes are followed from a span to the write at the root of its trace.
const maxDepth = 1000

// causeOf returns the ID of the span that a span is a part of, or else of the one that caused it.
func causeOf(s *trace.Span) string {
	switch {
	case s.Parent != "":
		return s.Parent
	case len(s.Links) > 0:
		return s.Links[0]
	}
	return ""
}

// rootTraceID returns the trace ID of a span without a cause: the one in its traceparent, or one made of the write.
func rootTraceID(s *trace.Span) TraceID {
	if p, ok := hop.ParseTraceParent(s.TraceParent); ok {
		return p.TraceID
	}
	if s.Object.UID == "" {
		return hashTraceID(s.ID)
	}
	return WriteTraceID(s.Object.UID, s.Revision)
}

// converter turns spans of one export into spans of OTLP.
type converter struct {
	cluster string
	// traces has the trace IDs by the IDs of spans.
	traces map[string]TraceID
}

func (c *converter) span(s *trace.Span) span {
	out := span{
		TraceID: c.traces[s.ID], SpanID: spanID(s.ID), Name: cut(s.Name), Kind: kindOf(s),
		Start: timestamp(s.Start), End: timestamp(s.Start.Add(max(s.Took, 0))), Flags: sampledFlags,
	}
	if s.Parent != "" {
		out.Parent = new(spanID(s.Parent))
	} else if p, ok := hop.ParseTraceParent(s.TraceParent); ok && p.TraceID == out.TraceID {
		out.Parent, out.Flags = new(SpanID(p.SpanID)), sampledFlags|remoteParentFlags
	}
	for _, id := range s.Links {
		if target, ok := c.traces[id]; ok {
			out.Links = append(out.Links, link{TraceID: target, SpanID: spanID(id), Flags: sampledFlags})
		}
	}
	out.describe(s)
	if s.Error != "" {
		out.Status = &status{Code: statusError, Message: cut(s.Error)}
	}
	return out
}

// kindOf returns the OTLP kind of a span: requests of clients are of the kind server.
func kindOf(s *trace.Span) int {
	if s.Parent == "" && s.Hop == 0 {
		return kindServer
	}
	return kindInternal
}

// cut returns a text that is short enough to be sent and is valid UTF-8.
func cut(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// maxText is the number of bytes of the longest text in a span.
const maxText = 1024
