package hop

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseTraceParent(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	p, ok := ParseTraceParent(good)
	if !ok || fmt.Sprintf("%x %x", p.TraceID, p.SpanID) != "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331" || !p.Sampled {
		t.Fatalf("%s is read as %+v, %v", good, p, ok)
	}
	if p, ok := ParseTraceParent(strings.TrimSuffix(good, "1") + "0"); !ok || p.Sampled {
		t.Errorf("a traceparent that is not sampled is read as %+v, %v", p, ok)
	}
	for name, text := range map[string]string{
		"nothing":            "",
		"short":              good[:54],
		"long":               good + "0",
		"a later version":    "01" + good[2:],
		"with more at end":   good + "-what-the-future-brings",
		"upper case":         strings.ToUpper(good),
		"no digits":          strings.Replace(good, "0af7", "0xf7", 1),
		"a trace ID of zero": "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01",
		"a span ID of zero":  "00-0af7651916cd43dd8448eb211c80319c-" + strings.Repeat("0", 16) + "-01",
		"wrong separators":   strings.ReplaceAll(good, "-", "_"),
		"separators moved":   "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
		"bad flags":          good[:53] + "0g",
		"spaces":             " " + good[:54],
		"a megabyte":         strings.Repeat(good, 20000),
		"escape sequences":   good[:51] + "\x1b[m",
	} {
		if p, ok := ParseTraceParent(text); ok || p != (TraceParent{}) {
			t.Errorf("%s: it is read as %+v, want nothing", name, p)
		}
	}
}

func FuzzParseTraceParent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-ff")
	f.Add("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := ParseTraceParent(text)
		if !ok {
			if p != (TraceParent{}) {
				t.Errorf("%q is refused, but read as %+v", text, p)
			}
			return
		}
		again := fmt.Sprintf("00-%x-%x-%s", p.TraceID, p.SpanID, text[53:])
		if again != text || p.TraceID == [16]byte{} || p.SpanID == [8]byte{} {
			t.Errorf("%q is read as %q", text, again)
		}
	})
}
