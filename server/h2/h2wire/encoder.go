package h2wire

import (
	"bytes"
	"net/http"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// Encoder encodes the header fields of the responses of a connection.
type Encoder struct {
	hpack  *hpack.Encoder
	block  bytes.Buffer
	lower  map[string]string // names on the wire by their canonical form
	date   string            // the Date field of responses in the current second
	second int64
}

// NewEncoder returns an encoder with an empty HPACK table.
func NewEncoder() *Encoder {
	e := &Encoder{lower: map[string]string{}}
	e.hpack = hpack.NewEncoder(&e.block)
	return e
}

// SetTableSize sets the size of the HPACK table that the peer allows.
func (e *Encoder) SetTableSize(size uint32) {
	e.hpack.SetMaxDynamicTableSizeLimit(min(size, DefaultTableSize))
	e.hpack.SetMaxDynamicTableSize(min(size, DefaultTableSize))
}

// Fields encodes the fields of a response, except those in skip. status is empty for a trailer. The bytes are valid until
// the next call.
func (e *Encoder) Fields(status string, h http.Header, skip map[string]bool) []byte {
	e.block.Reset()
	if status != "" {
		e.field(":status", status)
	}
	for key, values := range h {
		if skip[key] {
			continue
		}
		name := e.name(key)
		if name == "" {
			continue
		}
		for _, v := range values {
			if httpguts.ValidHeaderFieldValue(v) {
				e.field(name, v)
			}
		}
	}
	return e.block.Bytes()
}

// field encodes one field. A field that differs in every response is not added to the HPACK table.
func (e *Encoder) field(name, value string) {
	unique := name == "audit-id" || name == "content-length" || name == "warning"
	_ = e.hpack.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: unique}) // into memory
}

// name returns the name of a field on the wire; empty for an invalid one, and for one that HTTP/2 does not have.
func (e *Encoder) name(key string) string {
	if lower, ok := e.lower[key]; ok {
		return lower
	}
	lower := ""
	switch key {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade":
	default:
		if httpguts.ValidHeaderFieldName(key) {
			lower = string(bytes.ToLower([]byte(key)))
		}
	}
	if len(e.lower) < maxCachedNames && len(key) <= maxCachedNameLength {
		e.lower[key] = lower
	}
	return lower
}

// Date returns the current time in the format of the Date field.
func (e *Encoder) Date() string {
	t := time.Now()
	if s := t.Unix(); s != e.second {
		e.second, e.date = s, t.UTC().Format(http.TimeFormat)
	}
	return e.date
}
