package trace

import (
	"strings"
	"unicode/utf8"

	"proa.dev/hop"
)

// AddBodies adds the bodies of requests and answers to the spans of a trace; of spans that are hidden it adds none.
func (x *Index) AddBodies(t *Trace) {
	byID := map[string]*hop.Wire{}
	for _, r := range x.records {
		if r.Wire != nil {
			byID[recordID(r)] = r.Wire
		}
	}
	for i := range t.Spans {
		if w := byID[t.Spans[i].ID]; w != nil && !t.Spans[i].Hidden {
			t.Spans[i].Wire = &Wire{
				Request:  bodyOf(w.Request, w.RequestType, w.RequestSize),
				Response: bodyOf(w.Response, w.ResponseType, w.ResponseSize),
			}
		}
	}
}

// bodyOf returns a body as text, if it is one. One that was cut may end within a character.
func bodyOf(data []byte, mediaType string, size int) Body {
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
