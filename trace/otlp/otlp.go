// Package otlp exports traces in the OpenTelemetry protocol, OTLP: as JSON, by HTTP to a collector or Jaeger, and all the time, as an
// Exporter that follows the recorder of a server. It reads traces and records alone, and knows no cluster.
package otlp

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/trace"
)

// JSON returns a trace as an ExportTraceServiceRequest in OTLP/JSON, which collectors and Jaeger read. All its spans have one trace ID,
// that of the write that began it: WriteTraceID, or the one that its client has sent.
func JSON(t *trace.Trace) ([]byte, error) {
	body, err := json.Marshal(requestOf(t))
	if err != nil {
		return nil, fmt.Errorf("encode the trace for OTLP: %w", err)
	}
	return body, nil
}

// requestOf turns a whole trace into spans of OTLP.
func requestOf(t *trace.Trace) *exportRequest {
	id := traceIDOf(t)
	known := make(map[string]bool, len(t.Spans))
	for i := range t.Spans {
		known[t.Spans[i].ID] = true
	}
	out := batch{cluster: string(t.ClusterUID)}
	for i := range t.Spans {
		from := &t.Spans[i]
		s := newSpan(from, id)
		for _, cause := range from.Links {
			if known[cause] {
				s.Links = append(s.Links, link{TraceID: id, SpanID: spanID(cause), Flags: sampledFlags})
			}
		}
		if i == 0 {
			addMilestones(&s, t)
		}
		out.add(from.Process, s)
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

// traceIDOf returns the trace ID of a trace: that of its first write without a cause.
func traceIDOf(t *trace.Trace) TraceID {
	first := ""
	for i := range t.Spans {
		s := &t.Spans[i]
		if first == "" {
			first = s.ID
		}
		if s.Parent == "" && len(s.Links) == 0 && s.Hop == 0 && s.Object.UID != "" && s.Revision != 0 {
			return rootTraceID(s.Object.UID, s.Revision, s.TraceParent)
		}
	}
	return hashTraceID("span " + first) // the reader may not see that write
}

// rootTraceID returns the trace ID of what a write without a cause has led to: the one that its client has sent, or one made of the write.
func rootTraceID(uid types.UID, rev int64, traceParent string) TraceID {
	if p, ok := hop.ParseTraceParent(traceParent); ok {
		return p.TraceID
	}
	return WriteTraceID(uid, rev)
}

// newSpan turns a span into one of OTLP, without its links.
func newSpan(s *trace.Span, id TraceID) span {
	out := span{
		TraceID: id, SpanID: spanID(s.ID), Name: cut(s.Name), Kind: kindOf(s),
		Start: timestamp(s.Start), End: timestamp(s.Start.Add(max(s.Took, 0))), Flags: sampledFlags,
	}
	if s.Parent != "" {
		out.Parent = new(spanID(s.Parent))
	} else if p, ok := hop.ParseTraceParent(s.TraceParent); ok && p.TraceID == out.TraceID {
		out.Parent, out.Flags = new(SpanID(p.SpanID)), sampledFlags|remoteParentFlags
	}
	out.describe(s)
	if s.Error != "" {
		out.Status = &status{Code: statusError, Message: cut(s.Error)}
	}
	return out
}

// kindOf returns the OTLP kind of a span: a request is server, and all other work is internal, as is a run of a command line program such
// as kubectl by the conventions of OpenTelemetry.
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
