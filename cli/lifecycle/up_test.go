package lifecycle

import (
	"testing"
	"time"
)

func TestLastError(t *testing.T) {
	since := time.Date(2026, 11, 15, 19, 0, 0, 0, time.UTC)
	const (
		before = `time=2026-11-15T18:59:59.999Z level=ERROR msg="of another run" err=old` + "\n"
		info   = `time=2026-11-15T19:00:01.000Z level=INFO msg="level=ERROR is only values" err=no` + "\n"
		broken = `time=2026-11-15T19:00:02.000Z level=ERROR msg="a loop ended" loop=node err="it needs \"containerd\" in /bin"` + "\n"
		bare   = `time=2026-11-15T19:00:03.000Z level=ERROR msg="a loop ended" loop=node` + "\n"
	)
	for lines, want := range map[string]string{
		"":                                  "",
		before + info:                       "",
		before + broken + info:              `it needs "containerd" in /bin`,
		broken + bare:                       "a loop ended",
		"panic: not written with slog":      "",
		broken + `level=ERROR err="cut off`: `it needs "containerd" in /bin`,
	} {
		if got := lastError(lines, since); got != want {
			t.Errorf("%q has %q, want %q", lines, got, want)
		}
	}
}
