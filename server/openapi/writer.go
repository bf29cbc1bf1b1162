package openapi

import (
	"encoding/json"
	"fmt"
	"io"

	"proa.dev/server/openapi/openapiproto"
)

// writer receives a document part by part, so that the whole of it is never in memory uncompressed.
type writer interface {
	// part writes a value under its path of keys. Parts whose paths begin alike must follow each other.
	part(v any, path ...string) error
	// end completes the document.
	end() error
}

// newWriter returns a writer of JSON, or of the protobuf form that encode makes of it.
func newWriter(w io.Writer, encode openapiproto.Encoder) writer {
	if encode == nil {
		return &jsonWriter{w: w}
	}
	return &protoWriter{w: w, encode: encode}
}

// encodePart encodes a value unless it is encoded already. Encoded values come from this package or from its data, so
// they are not checked again.
func encodePart(v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return raw, nil
	}
	return encode(v)
}

// jsonWriter writes nested objects. It remembers which of them are open.
type jsonWriter struct {
	w    io.Writer
	open []string // keys of the open objects, from the outermost; the document itself is not among them
	// started says that the document has begun, filled that the innermost open object has an entry.
	started, filled bool
}

func (j *jsonWriter) part(v any, path ...string) error {
	raw, err := encodePart(v)
	if err != nil {
		return err
	}
	var out []byte
	if !j.started {
		out, j.started = append(out, '{'), true
	}
	last := len(path) - 1
	shared := 0
	for shared < len(j.open) && shared < last && j.open[shared] == path[shared] {
		shared++
	}
	out = j.close(out, shared)
	for _, key := range path[shared:last] {
		if out, err = j.key(out, key); err != nil {
			return err
		}
		out, j.open, j.filled = append(out, '{'), append(j.open, key), false
	}
	if out, err = j.key(out, path[last]); err != nil {
		return err
	}
	j.filled = true
	return j.write(append(out, raw...))
}

// close ends open objects until so many are left.
func (j *jsonWriter) close(out []byte, left int) []byte {
	for len(j.open) > left {
		out, j.open, j.filled = append(out, '}'), j.open[:len(j.open)-1], true
	}
	return out
}

// key begins an entry of the innermost open object.
func (j *jsonWriter) key(out []byte, key string) ([]byte, error) {
	if j.filled {
		out = append(out, ',')
	}
	name, err := encode(key)
	if err != nil {
		return nil, err
	}
	return append(append(out, name...), ':'), nil
}

func (j *jsonWriter) end() error {
	var out []byte
	if !j.started {
		out = append(out, '{')
	}
	return j.write(append(j.close(out, 0), '}'))
}

func (j *jsonWriter) write(raw []byte) error {
	if _, err := j.w.Write(raw); err != nil {
		return fmt.Errorf("openapi: write a document: %w", err)
	}
	return nil
}

// protoWriter writes each part as a document of its own. Protobuf documents that follow each other are one document:
// readers merge messages that occur more than once.
type protoWriter struct {
	w      io.Writer
	encode openapiproto.Encoder
}

func (p *protoWriter) part(v any, path ...string) error {
	raw, err := encodePart(v)
	if err != nil {
		return err
	}
	var part any
	if err := json.Unmarshal(raw, &part); err != nil {
		return fmt.Errorf("openapi: decode a part: %w", err)
	}
	for i := len(path) - 1; i >= 0; i-- {
		part = object{path[i]: part}
	}
	if _, err := p.w.Write(p.encode(nil, part)); err != nil {
		return fmt.Errorf("openapi: write a document: %w", err)
	}
	return nil
}

func (p *protoWriter) end() error { return nil }
