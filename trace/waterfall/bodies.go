package waterfall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"proa.dev/hop"
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
		if s.Wire.InProcess {
			fmt.Fprintln(w, "  The caller is in the server's process: no bytes were sent. These are the objects that it handed over and was answered, as JSON.")
		}
		writeBody(w, "request", s.Wire.Request, printable)
		writeBody(w, "answer", s.Wire.Response, printable)
		if s.Wire.InProcess && (isTooLarge(s.Wire.Request) || isTooLarge(s.Wire.Response)) {
			fmt.Fprintf(w, "  An object with more than %d bytes is not kept; its size is that of its protobuf.\n", hop.MaxBody)
		}
	}
	if !found {
		fmt.Fprintln(w, "\nNo bodies are kept of these requests: those of Secrets, Leases and Events never are, not all when there are many requests, and old ones make room for new ones.")
	}
}

// isTooLarge reports whether only the size of the object of a caller in the server's process is known.
func isTooLarge(b trace.Body) bool { return b.Size > 0 && b.Text == "" }

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
