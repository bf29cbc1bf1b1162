package goprocess

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestLibraryErrorsAreLoggedAtDebug checks that an error record of a library is logged at level debug, and dropped if the
// logger's level is higher. Libraries log errors without calling Enabled.
func TestLibraryErrorsAreLoggedAtDebug(t *testing.T) {
	for level, logged := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		var out bytes.Buffer
		d := detail{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})}
		for _, h := range []slog.Handler{d, d.WithGroup("g"), d.WithAttrs([]slog.Attr{slog.Int("a", 1)})} {
			out.Reset()
			if err := h.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelError, "a stream ended", 0)); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(out.String(), "level=DEBUG") && strings.Contains(out.String(), "a stream ended"); got != logged {
				t.Errorf("at level %s the log has %q", level, out.String())
			}
		}
	}
}
