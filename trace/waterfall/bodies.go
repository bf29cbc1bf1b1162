package waterfall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"proa.dev/trace"
)

// WriteBodies prints the bodies of the requests of a trace.
func WriteBodies(w io.Writer, t *trace.Trace, printable func(string) string) {
	found := false
	for i := range t.Spans {
		s := &t.Spans[i]
		if s.Wire == nil {
			continue
		}
		found = true
		fmt.Fprintf(w, "\n%s %s, %s after the start\n", printable(s.Name), printable(s.Object.Name), trace.Seconds(s.Start.Sub(t.Start)))
		writeBody(w, "request", s.Wire.Request, printable)
		writeBody(w, "answer", s.Wire.Response, printable)
	}
	if !found {
		fmt.Fprintln(w, "\nNo bodies are kept of these requests: only those over HTTP have any, those of Secrets are never kept, and old ones make room.")
	}
}

func writeBody(w io.Writer, what string, b trace.Body, printable func(string) string) {
	switch {
	case b.Size == 0:
		return
	case b.Text == "":
		fmt.Fprintf(w, "  %s: %d bytes of %s\n", what, b.Size, printable(b.Type))
		return
	}
	fmt.Fprintf(w, "  %s: %d bytes of %s\n", what, b.Size, printable(b.Type))
	text := b.Text
	var indented bytes.Buffer
	if json.Indent(&indented, []byte(text), "", "  ") == nil {
		text = indented.String()
	}
	for line := range strings.Lines(text) {
		fmt.Fprintln(w, "    "+printable(strings.TrimRight(line, "\n")))
	}
	if len(b.Text) < b.Size {
		fmt.Fprintf(w, "    … and %d bytes more, which are not kept\n", b.Size-len(b.Text))
	}
}
