package goprocess

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogOfAFlood checks that requests that fail, with paths as long as a request may have, fill the log with little, do
// not keep other lines out of it, and that the log says what is missing.
func TestLogOfAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(BoundedLog(slog.NewTextHandler(&out, nil))).With("server", strings.Repeat("s", 1<<20))
		path := strings.Repeat("p", 64<<10)
		for range 2_000 {
			log.Warn("request failed", "path", path, "err", fmt.Errorf("the path %s: %w", path, errors.New("no")))
		}
		log.WithGroup("g").Error("evidence", "stack", strings.Repeat("a", 10<<10), slog.Group("in", "text", path))
		for i := range 3_000 {
			log.Info(fmt.Sprintf("message %d", i))
		}
		time.Sleep(time.Minute)
		log.Warn("request failed", "path", "again")
		text := out.String()
		if len(text) > 8<<20 {
			t.Errorf("the log has %d bytes", len(text))
		}
		for what, want := range map[string]int{
			`msg="request failed"`: logBurst + 1, "path=again": 1, "message=\"request failed\" lines=1950": 1,
			"... (64512 bytes more)": logBurst + 1, strings.Repeat("a", 10<<10): 1, `msg="message `: maxLogMessages - 2 + logBurst,
		} {
			if n := strings.Count(text, what); n != want {
				t.Errorf("%d times %s, want %d", n, what, want)
			}
		}
	})
}

// TestCutText checks that a text is cut between two characters.
func TestCutText(t *testing.T) {
	if got := cutText("aé€", 5) + cutText("short", 5); got != "aé... (3 bytes more)short" {
		t.Errorf("got %s", got)
	}
}
