package trace

import (
	"strings"
	"unicode/utf8"

	"proa.dev/hop"
)

// bodyKey tells which span the bodies of a record belong to. The ID alone does not: it is a short hash of texts, some of which clients
// choose, so that somebody may find a request with the ID of another one.
type bodyKey struct {
	id       string
	object   Ref
	revision int64
	name     string // has the verb
}

// AddBodies adds the bodies of requests and answers to the spans of a trace that are about whole requests; of spans that are hidden it
// adds none.
func (x *Index) AddBodies(t *Trace) {
	bodies := map[bodyKey]*hop.Wire{}
	for _, r := range x.records {
		if r.Wire != nil {
			bodies[bodyKey{recordID(r), refOf(r), r.Rev, nameOf(r)}] = r.Wire
		}
	}
	for i := range t.Spans {
		s := &t.Spans[i]
		if s.Hidden || s.Parent != "" || s.Hop != 0 { // a whole request has several hops; the time at the client has one
			continue
		}
		if w := bodies[bodyKey{s.ID, s.Object, s.Revision, s.Name}]; w != nil {
			s.Wire = &Wire{
				Request:   bodyOf(w.Request, w.RequestType, w.RequestSize, w.RequestJSON),
				Response:  bodyOf(w.Response, w.ResponseType, w.ResponseSize, w.ResponseJSON),
				InProcess: w.InProcess,
			}
		}
	}
}

// bodyOf returns a body as text, if it is one. asJSON makes JSON of the object of a caller in the server's process; it is nil for what was
// sent. A body that was cut may end within a character.
func bodyOf(data []byte, mediaType string, size int, asJSON func([]byte) ([]byte, error)) Body {
	if asJSON != nil {
		if text, err := asJSON(data); err == nil {
			data, mediaType, size = text[:min(len(text), hop.MaxBody)], "application/json", len(text)
		}
	}
	b := Body{Type: mediaType, Size: size}
	text := string(data)
	if size > len(data) {
		text = strings.ToValidUTF8(text, "")
	}
	if utf8.ValidString(text) && !strings.Contains(mediaType, "protobuf") {
		b.Text = text
	}
	return b
}
