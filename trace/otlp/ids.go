package otlp

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// TraceID identifies a trace in OpenTelemetry.
type TraceID [16]byte

// SpanID identifies a span of a trace.
type SpanID [8]byte

// WriteTraceID returns the trace ID of everything that one write has caused. It depends on nothing but the UID of the object and the
// revision of the write, so that all servers and all exports agree on it.
func WriteTraceID(uid types.UID, rev int64) TraceID {
	return hashTraceID(string(uid) + "@" + strconv.FormatInt(rev, 10))
}

func hashTraceID(text string) TraceID {
	sum := sha256.Sum256([]byte("proa trace " + text))
	return TraceID(sum[:])
}

// spanID returns the ID of a span in OTLP: its own, which has 16 hexadecimal digits, so that a span is found by the same ID everywhere.
func spanID(id string) SpanID {
	var out SpanID
	if n, err := hex.Decode(out[:], []byte(id[:min(len(id), 16)])); err == nil && n == len(out) && len(id) == 16 && out != (SpanID{}) {
		return out
	}
	sum := sha256.Sum256([]byte("proa span " + id))
	return SpanID(sum[:])
}
