package hop

import "encoding/hex"

// TraceParent is a traceparent of W3C Trace Context: it says of which span in which trace a request is a part.
type TraceParent struct {
	TraceID [16]byte
	SpanID  [8]byte
	// Sampled says that the client records its own spans of that trace.
	Sampled bool
}

// ParseTraceParent reads a traceparent of version 00: exactly 55 bytes, lower-case hexadecimal digits, no ID of only zeros. Anything else
// is not one, also a traceparent of a later version, which could mean something else.
func ParseTraceParent(text string) (TraceParent, bool) {
	var p TraceParent
	var flags [1]byte
	if len(text) != 55 || text[:3] != "00-" || text[35] != '-' || text[52] != '-' ||
		!decodeLowerHex(p.TraceID[:], text[3:35]) || !decodeLowerHex(p.SpanID[:], text[36:52]) || !decodeLowerHex(flags[:], text[53:]) ||
		p.TraceID == [16]byte{} || p.SpanID == [8]byte{} {
		return TraceParent{}, false
	}
	p.Sampled = flags[0]&1 != 0
	return p, true
}

func decodeLowerHex(out []byte, text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(out, []byte(text))
	return err == nil
}
