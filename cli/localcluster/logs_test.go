package localcluster

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLastLines(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\nc", 2, "b\nc"}, {"a\nb\nc\n", 3, "a\nb\nc\n"}, {"a\nb\n", 9, "a\nb\n"}, {"a\n", 0, ""},
		{"", 3, ""},
		{"\n\n\n", 2, "\n\n"}, {long + "\n" + long + "\nz\n", 2, long + "\nz\n"},
	} {
		at, err := lastLines(strings.NewReader(test.text), test.n)
		if got := test.text[at:]; err != nil || got != test.want {
			t.Errorf("the last %d lines of %.20q are %.20q (%v), want %.20q", test.n, test.text, got, err, test.want)
		}
	}
}

// lockedBuffer is a buffer that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

// TestShowLogFollows checks that lines which are added to a log are shown, also after the file was truncated.
func TestShowLogFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.log")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one\ntwo\n")
	ctx, stop := context.WithCancel(t.Context())
	var out lockedBuffer
	done := make(chan error, 1)
	go func() { done <- ShowLog(ctx, &out, path, LogOptions{Follow: true, Lines: 1}) }()
	wait := func(text string) {
		for !out.has(text) {
			select {
			case err := <-done:
				t.Fatalf("it ended: %v", err)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	wait("two\n")
	// The line is appended: a file that is written anew is empty for a moment, and would be shown from its beginning.
	added, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer added.Close()
	if _, err := added.WriteString("three\n"); err != nil {
		t.Fatal(err)
	}
	wait("three\n")
	write("four\n")
	wait("four\n")
	stop()
	if err := <-done; err != nil || out.has("one\n") {
		t.Errorf("followed: %v, %q", err, out.b.String())
	}
}

// TestFailure checks that the reason of a failed start is found in the log, and that a server that ran since then hides it.
func TestFailure(t *testing.T) {
	c := Cluster{Dir: t.TempDir()}
	if got := c.Failure(); got != "" {
		t.Errorf("without a log: %q", got)
	}
	const failed = "proa: the store is damaged\n  run \"proa store check\"\n"
	for log, want := range map[string]string{
		"":                                "",
		"ready: https://x\n" + failed:     `the store is damaged run "proa store check"`,
		failed + "ready: https://x\n":     "",
		failed + "time=2026 level=INFO\n": "",
		failed + "proa: another reason\n": "another reason",
	} {
		if err := os.WriteFile(c.LogFile(), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.Failure(); got != want {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}

// TestOrRoot checks that root is not named twice.
func TestOrRoot(t *testing.T) {
	if a, b := orRoot("root"), orRoot("anna"); a != "root" || b != "anna or as root" {
		t.Errorf("%q, %q", a, b)
	}
}

// TestTailBehindAnOffset checks that lines of an earlier run are not among the last lines, unless the log was truncated since.
func TestTailBehindAnOffset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.log")
	if err := os.WriteFile(path, []byte("of the last run\none\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := int64(len("of the last run\n"))
	for _, c := range []struct {
		lines int
		from  int64
		want  string
	}{{9, begin, "one\ntwo"}, {1, begin, "two"}, {9, 0, "of the last run\none\ntwo"}, {9, 1000, "of the last run\none\ntwo"}} {
		if got := Tail(path, c.lines, c.from); got != c.want {
			t.Errorf("the last %d lines behind %d are %q, want %q", c.lines, c.from, got, c.want)
		}
	}
}
