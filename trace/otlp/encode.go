package otlp

import (
	"encoding/hex"
	"strconv"
	"time"
)

// The types of this file are OTLP's messages in their JSON form: names in lower camel case, enums as numbers, 64-bit numbers as decimal
// strings, and the IDs in hexadecimal, unlike other bytes of protobuf in JSON.

type exportRequest struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource   resource     `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

type resource struct {
	Attributes []attribute `json:"attributes,omitempty"`
}

type scopeSpans struct {
	Scope scope  `json:"scope"`
	Spans []span `json:"spans"`
}

type scope struct {
	Name string `json:"name"`
}

type span struct {
	TraceID    TraceID     `json:"traceId"`
	SpanID     SpanID      `json:"spanId"`
	Parent     *SpanID     `json:"parentSpanId,omitempty"`
	Flags      uint32      `json:"flags,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"`
	Start      decimal     `json:"startTimeUnixNano"`
	End        decimal     `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes,omitempty"`
	Events     []event     `json:"events,omitempty"`
	Links      []link      `json:"links,omitempty"`
	Status     *status     `json:"status,omitempty"`
}

type event struct {
	Time decimal `json:"timeUnixNano"`
	Name string  `json:"name"`
}

type link struct {
	TraceID TraceID `json:"traceId"`
	SpanID  SpanID  `json:"spanId"`
	Flags   uint32  `json:"flags,omitempty"`
}

type status struct {
	Message string `json:"message,omitempty"`
	Code    int    `json:"code"`
}

type attribute struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

// value is an attribute's value: exactly one field is set.
type value struct {
	Text   *string  `json:"stringValue,omitempty"`
	Number *decimal `json:"intValue,omitempty"`
	Bool   *bool    `json:"boolValue,omitempty"`
}

// The numbers of OTLP's enums and flags.
const (
	kindInternal, kindServer = 1, 2

	statusError = 2
	// sampledFlags are the flags of W3C trace context, and that OTLP knows whether the parent is in another process.
	sampledFlags = 0x101
	// remoteParentFlags says that the parent is in another process.
	remoteParentFlags = 0x200
)

// timestamp returns nanoseconds since 1970. OTLP has no earlier times, which stand for a clock that is wrong.
func timestamp(t time.Time) decimal { return decimal(max(t.UnixNano(), 0)) }

// decimal is a 64-bit number, which is a decimal string in JSON.
type decimal int64

// MarshalText implements encoding.TextMarshaler.
func (n decimal) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(n), 10), nil }

// MarshalText implements encoding.TextMarshaler.
func (id TraceID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// MarshalText implements encoding.TextMarshaler.
func (id SpanID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// batch collects spans by the process that has recorded them.
type batch struct {
	cluster   string
	nodeUID   func(name string) string // nil if UIDs of nodes are not known
	processes []string
	spans     map[string][]span
	count     int
}

func (b *batch) add(process string, s span) {
	if b.spans == nil {
		b.spans = map[string][]span{}
	}
	if _, ok := b.spans[process]; !ok {
		b.processes = append(b.processes, process)
	}
	b.spans[process] = append(b.spans[process], s)
	b.count++
}

func (b *batch) request() *exportRequest {
	out := &exportRequest{ResourceSpans: []resourceSpans{}}
	for _, process := range b.processes {
		out.ResourceSpans = append(out.ResourceSpans, resourceSpans{
			Resource:   resource{Attributes: resourceAttributes(b.cluster, process)},
			ScopeSpans: []scopeSpans{{Scope: scope{Name: "proa.dev/hop"}, Spans: b.spans[process]}},
		})
	}
	return out
}
