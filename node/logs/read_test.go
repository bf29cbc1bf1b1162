package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	corev1 "k8s.io/api/core/v1"
)

// logLines returns log entries as a runtime writes them: words are e (stderr) or o (stdout), + for a part of a line, and a text; each is a
// second later.
func logLines(from int, words ...string) string {
	var out strings.Builder
	for i, w := range words {
		stream, tag := "stdout", "F"
		if w[0] == 'e' {
			stream = "stderr"
		}
		if w = w[1:]; strings.HasPrefix(w, "+") {
			tag, w = "P", w[1:]
		}
		fmt.Fprintf(&out, "2026-01-01T00:00:%02d.5Z %s %s %s\n", from+i, stream, tag, w)
	}
	return out.String()
}

func writeGzip(t *testing.T, path, text string) {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, buf.String())
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	writeGzip(t, path+".20260101-000000.gz", logLines(0, "ozero", "oone"))
	writeFile(t, path+".20260101-000000.tmp", "half of a file")
	writeFile(t, path+".20260101-000002", logLines(2, "e+two-", "oother", "etwo"))
	writeFile(t, path, logLines(5, "ofive", "o+six-", "o+six-", "osix", "eseven")+"2026-01-01T00:00:10Z stdout F cut short")
	for _, test := range []struct {
		name string
		o    Options
		want string
	}{
		{"all of it", Options{Tail: -1}, "zero|one|two-other|two|five|six-six-six|seven|cut short|"},
		{"no lines", Options{Tail: 0}, ""},
		{"the last line and an unfinished one", Options{Tail: 1}, "seven|cut short|"},
		{"a long line counts once", Options{Tail: 2}, "six-six-six|seven|cut short|"},
		{"a whole file", Options{Tail: 3}, "five|six-six-six|seven|cut short|"},
		{"a part of the previous file", Options{Tail: 4}, "two|five|six-six-six|seven|cut short|"},
		{"two files and a part", Options{Tail: 6}, "one|two-other|two|five|six-six-six|seven|cut short|"},
		{"more lines than exist", Options{Tail: 60}, "zero|one|two-other|two|five|six-six-six|seven|cut short|"},
		{"one stream", Options{Tail: -1, Stream: Stderr}, "two-two|seven|"},
		{"bytes", Options{Tail: -1, Limit: 7}, "zero|on"},
		{"bytes to the end of a line", Options{Tail: -1, Limit: 5}, "zero|"},
		{"since", Options{Tail: -1, Since: time.Date(2026, 1, 1, 0, 0, 8, 0, time.UTC)}, "six|seven|cut short|"},
		{"timestamps", Options{Tail: 2, Timestamps: true}, "2026-01-01T00:00:06.500000000Z six-six-six|2026-01-01T00:00:09.500000000Z seven|2026-01-01T00:00:10.000000000Z cut short|"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := (&Reader{}).Read(t.Context(), Log{Path: path}, test.o, &out, nil); err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(out.String(), "\n", "|"); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
	if err := (&Reader{}).Read(t.Context(), Log{Path: path + ".none"}, Options{}, io.Discard, nil); err == nil {
		t.Error("a log that does not exist was read")
	}
}

// TestTailOfLongFiles compares tail, which reads blocks from the end, with counting lines from the beginning.
func TestTailOfLongFiles(t *testing.T) {
	var all bytes.Buffer
	for i := range 200 {
		tag := "F"
		if i%7 == 3 {
			tag = "P"
		}
		fmt.Fprintf(&all, "2026-01-01T00:00:00Z stdout %s %d %s\n", tag, i, strings.Repeat("x", i*37%5000))
	}
	total := int64(0)
	for line := range bytes.Lines(all.Bytes()) {
		if endsLine(line) {
			total++
		}
	}
	for n := int64(1); n <= total+1; n++ {
		at, lines, err := tail(bytes.NewReader(all.Bytes()), int64(all.Len()), n)
		if err != nil {
			t.Fatal(err)
		}
		got := int64(0)
		for line := range bytes.Lines(all.Bytes()[at:]) {
			if endsLine(line) {
				got++
			}
		}
		before := all.Bytes()[:at]
		if got != min(n, total) || lines != got || at > 0 && (before[at-1] != '\n' || !endsLine(lastLine(before))) {
			t.Fatalf("the last %d lines begin at %d, which leaves %d; tail returns %d", n, at, got, lines)
		}
	}
}

func lastLine(b []byte) []byte {
	b = b[:len(b)-1]
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// fakeEnds is closed when the container ends.
type fakeEnds chan struct{}

func (e fakeEnds) Ended(context.Context, string) <-chan struct{} { return e }

// waitingWriter collects the output of a Reader, and lets a test wait for a text.
type waitingWriter struct {
	mu   sync.Mutex
	more *sync.Cond
	text string
}

func newWaitingWriter() *waitingWriter { s := &waitingWriter{}; s.more = sync.NewCond(&s.mu); return s }

func (s *waitingWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text += string(b)
	s.more.Broadcast()
	return len(b), nil
}

func (s *waitingWriter) waitFor(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.text != text {
		s.more.Wait()
	}
}

// fakeWriter is a runtime that writes the log of one container.
type fakeWriter struct {
	path string
	file *os.File
}

func (r *fakeWriter) Logs(context.Context) ([]Log, error) { return []Log{{Path: r.path, ID: "a"}}, nil }

func (r *fakeWriter) Reopen(context.Context, string) (err error) {
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file, err = os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return err
}

func (r *fakeWriter) writeLines(t *testing.T, words ...string) {
	t.Helper()
	if _, err := r.file.WriteString(logLines(0, words...)); err != nil {
		t.Fatal(err)
	}
}

func TestFollowThroughRotations(t *testing.T) {
	for _, how := range []string{"inotify", "polling"} {
		t.Run(how, func(t *testing.T) {
			r := &fakeWriter{path: filepath.Join(t.TempDir(), "0.log")}
			if err := r.Reopen(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.file.Close() }()
			reader, ends, out := &Reader{}, make(fakeEnds), newWaitingWriter()
			reader.Ends = ends
			var wg sync.WaitGroup
			if how == "inotify" {
				n, err := NewNotify()
				if err != nil {
					t.Skip(err)
				}
				reader.Notify = n
				ctx, stop := context.WithCancel(t.Context())
				defer wg.Wait()
				defer stop()
				wg.Go(func() { n.Run(ctx) })
			}
			done := make(chan error, 1)
			r.writeLines(t, "oold")
			go func() { done <- reader.Read(t.Context(), Log{r.path, "a"}, Options{Tail: -1, Follow: true}, out, nil) }()
			out.waitFor("old\n")
			r.writeLines(t, "onew")
			out.waitFor("old\nnew\n")
			rotator := &Rotator{Writing: r, MaxSize: 1, MaxFiles: 3, Log: slog.New(slog.DiscardHandler)}
			want := "old\nnew\n"
			for i := range 4 {
				rotator.rotateAll(t.Context())
				r.writeLines(t, fmt.Sprint("oafter ", i))
				want += fmt.Sprintf("after %d\n", i)
				out.waitFor(want)
			}
			if _, err := r.file.WriteString("2026-01-01T00:00:09Z stdout F in two "); err != nil {
				t.Fatal(err)
			}
			if _, err := r.file.WriteString("pieces\n"); err != nil {
				t.Fatal(err)
			}
			close(ends)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if want += "in two pieces\n"; out.text != want {
				t.Errorf("got %q, want %q", out.text, want)
			}
			files, _, err := rotated(r.path)
			if err != nil || len(files) != 2 || !strings.HasSuffix(files[0], gzipSuffix) || strings.HasSuffix(files[1], gzipSuffix) {
				t.Errorf("rotated files: %v (%v), want an old compressed one and a new one", files, err)
			}
		})
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	writeFile(t, path, logLines(0, "oone"))
	ctx, stop := context.WithCancel(t.Context())
	out, done := newWaitingWriter(), make(chan error, 1)
	go func() {
		done <- (&Reader{Ends: make(fakeEnds)}).Read(ctx, Log{Path: path}, Options{Tail: -1, Follow: true}, out, nil)
	}()
	out.waitFor("one\n")
	stop()
	if err := <-done; err == nil {
		t.Error("it ended without an error")
	}
}

func TestInterruptedRotation(t *testing.T) {
	r := &fakeWriter{path: filepath.Join(t.TempDir(), "0.log")}
	rotator := &Rotator{Writing: r, Log: slog.New(slog.DiscardHandler)}
	rotator.rotateAll(t.Context()) // the file was renamed, and then the agent was killed
	if _, err := os.Stat(r.path); err != nil {
		t.Fatal(err)
	}
	_ = r.file.Close()
	// The agent was killed after compressing a file and before removing it.
	writeGzip(t, r.path+".20260101-000000.gz", "x")
	writeFile(t, r.path+".20260101-000000", "x")
	writeFile(t, r.path+".20260101-000001.tmp", "x")
	writeFile(t, r.path, strings.Repeat("x", 100))
	rotator.MaxSize = 100
	rotator.rotateAll(t.Context())
	_ = r.file.Close()
	files, leftovers, err := rotated(r.path)
	if err != nil || len(files) != 2 || len(leftovers) != 0 || files[0] != r.path+".20260101-000000.gz" {
		t.Errorf("files %v, leftovers %v (%v)", files, leftovers, err)
	}
}

func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	secret, link, pipe := filepath.Join(dir, "secret"), filepath.Join(dir, "0.log"), filepath.Join(dir, "1.log")
	writeFile(t, secret, logLines(0, "osecret"))
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, pipe, dir} {
		var out bytes.Buffer
		if err := (&Reader{}).Read(t.Context(), Log{Path: path}, Options{Tail: -1}, &out, nil); err == nil || out.Len() > 0 {
			t.Errorf("%s: %q (%v)", path, out.String(), err)
		}
		if err := compress(path); err == nil {
			t.Errorf("%s was compressed", path)
		}
	}
}

func TestContainerOfStatus(t *testing.T) {
	status := func(c corev1.ContainerStatus) *corev1.Pod {
		c.Name = "c"
		p := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{c}}}
		p.Name = "p"
		return p
	}
	ended := func(id string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for _, test := range []struct {
		name     string
		pod      *corev1.Pod
		previous bool
		want     string
	}{
		{"no status", &corev1.Pod{}, false, `container "c" in pod "" is not available`},
		{"running", status(corev1.ContainerStatus{ContainerID: "containerd://a", State: running}), false, "containerd://a"},
		{"running, previous", status(corev1.ContainerStatus{ContainerID: "containerd://b", State: running,
			LastTerminationState: ended("containerd://a")}), true, "containerd://a"},
		{"no previous container", status(corev1.ContainerStatus{ContainerID: "containerd://b", State: running}), true,
			`previous terminated container "c" in pod "p" not found`},
		{"ended", status(corev1.ContainerStatus{State: ended("containerd://a")}), false, "containerd://a"},
		{"ended without having started", status(corev1.ContainerStatus{State: ended("")}), false, `container "c" in pod "p" is terminated`},
		{"the next container did not start",
			status(corev1.ContainerStatus{State: ended(""), LastTerminationState: ended("containerd://a")}), false, "containerd://a"},
		{"crashed", status(corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: ended("containerd://a")}),
			false, "containerd://a"},
		{"waits", status(corev1.ContainerStatus{State: waiting("ContainerCreating")}), false,
			`container "c" in pod "p" is waiting to start: ContainerCreating`},
		{"no image", status(corev1.ContainerStatus{State: waiting("ErrImagePull")}), false,
			`container "c" in pod "p" is waiting to start: image can't be pulled`},
		{"image back-off", status(corev1.ContainerStatus{State: waiting("ImagePullBackOff")}), false, `container "c" in pod "p" is waiting to start: trying and failing to pull image`},
		{"empty status", status(corev1.ContainerStatus{}), false, `container "c" in pod "p" is waiting to start - no logs yet`},
	} {
		got, err := Container(test.pod, "c", test.previous)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(logLines(0, "otext")))
	f.Add([]byte("2016-10-06T00:17:09.669794202+02:00 stderr P:x part"))
	f.Add([]byte("x"))
	f.Add([]byte("2026-01-01T00:00:00Z stdout  "))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := Parse(line)
		if err != nil {
			return
		}
		if !bytes.HasSuffix(bytes.TrimSuffix(line, []byte("\n")), e.Text) {
			t.Errorf("%q is not the end of %q", e.Text, line)
		}
		if endsLine(line) == e.Partial {
			t.Errorf("%q: partial is %v, and endsLine is %v", line, e.Partial, endsLine(line))
		}
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, line, 0o600); err != nil {
			t.Fatal(err)
		}
		for n := range int64(3) {
			if err := (&Reader{}).Read(t.Context(), Log{Path: path}, Options{Tail: n, Timestamps: true}, io.Discard, nil); err != nil {
				t.Error(err)
			}
		}
	})
}
