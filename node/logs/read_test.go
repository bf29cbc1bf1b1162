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

// stamped writes entries as a runtime does: words are e (stderr) or o (stdout), + for a part of a line, and a text; each is a
// second later.
func stamped(from int, words ...string) string {
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

func zip(t *testing.T, path, text string) {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, path, buf.String())
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	zip(t, path+".20260101-000000.gz", stamped(0, "ozero", "oone"))
	write(t, path+".20260101-000000.tmp", "half of a file")
	write(t, path+".20260101-000002", stamped(2, "e+two-", "oother", "etwo"))
	write(t, path, stamped(5, "ofive", "o+six-", "o+six-", "osix", "eseven")+"2026-01-01T00:00:10Z stdout F cut short")
	for _, test := range []struct {
		name string
		o    Options
		want string
	}{
		{"all of it", Options{Tail: -1}, "zero|one|two-other|two|five|six-six-six|seven|cut short|"},
		{"no line", Options{Tail: 0}, ""},
		{"the last line, and what is being written", Options{Tail: 1}, "seven|cut short|"},
		{"a long line counts once", Options{Tail: 2}, "six-six-six|seven|cut short|"},
		{"a whole file", Options{Tail: 3}, "five|six-six-six|seven|cut short|"},
		{"a part of the file before", Options{Tail: 4}, "two|five|six-six-six|seven|cut short|"},
		{"two files and a part", Options{Tail: 6}, "one|two-other|two|five|six-six-six|seven|cut short|"},
		{"more than there is", Options{Tail: 60}, "zero|one|two-other|two|five|six-six-six|seven|cut short|"},
		{"one stream", Options{Tail: -1, Stream: Stderr}, "two-two|seven|"},
		{"bytes", Options{Tail: -1, Limit: 7}, "zero|on"},
		{"bytes to the end of a line", Options{Tail: -1, Limit: 5}, "zero|"},
		{"since", Options{Tail: -1, Since: time.Date(2026, 1, 1, 0, 0, 8, 0, time.UTC)}, "six|seven|cut short|"},
		{"times", Options{Tail: 2, Timestamps: true}, "2026-01-01T00:00:06.500000000Z six-six-six|2026-01-01T00:00:09.500000000Z seven|2026-01-01T00:00:10.000000000Z cut short|"},
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
		t.Error("a log that is not there was read")
	}
}

// TestTailOfLongFiles compares looking from the end with looking from the beginning, where lines cross the blocks.
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
			t.Fatalf("the last %d lines: begin at %d, which leaves %d; %d are said", n, at, got, lines)
		}
	}
}

func lastLine(b []byte) []byte {
	b = b[:len(b)-1]
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// ending is a life that a test ends.
type ending chan struct{}

func (e ending) Ended(context.Context, string) <-chan struct{} { return e }

// sheet is what a reader sees, and lets a test wait until it sees something.
type sheet struct {
	mu   sync.Mutex
	more *sync.Cond
	text string
}

func newSheet() *sheet { s := &sheet{}; s.more = sync.NewCond(&s.mu); return s }

func (s *sheet) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text += string(b)
	s.more.Broadcast()
	return len(b), nil
}

func (s *sheet) until(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.text != text {
		s.more.Wait()
	}
}

// reopening is a runtime that writes to path.
type reopening struct {
	path string
	file *os.File
}

func (r *reopening) Logs(context.Context) ([]Log, error) { return []Log{{Path: r.path, ID: "a"}}, nil }

func (r *reopening) Reopen(context.Context, string) (err error) {
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file, err = os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return err
}

func (r *reopening) say(t *testing.T, words ...string) {
	t.Helper()
	if _, err := r.file.WriteString(stamped(0, words...)); err != nil {
		t.Fatal(err)
	}
}

func TestFollowThroughRotations(t *testing.T) {
	for _, how := range []string{"told by the kernel", "looking every second"} {
		t.Run(how, func(t *testing.T) {
			r := &reopening{path: filepath.Join(t.TempDir(), "0.log")}
			if err := r.Reopen(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.file.Close() }()
			reader, life, out := &Reader{}, make(ending), newSheet()
			reader.Ends = life
			var wg sync.WaitGroup
			if how[0] == 't' {
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
			r.say(t, "oold")
			go func() { done <- reader.Read(t.Context(), Log{r.path, "a"}, Options{Tail: -1, Follow: true}, out, nil) }()
			out.until("old\n")
			r.say(t, "onew")
			out.until("old\nnew\n")
			rotator := &Rotator{Writing: r, MaxSize: 1, MaxFiles: 3, Log: slog.New(slog.DiscardHandler)}
			want := "old\nnew\n"
			for i := range 4 {
				rotator.rotateAll(t.Context())
				r.say(t, fmt.Sprint("oafter ", i))
				want += fmt.Sprintf("after %d\n", i)
				out.until(want)
			}
			if _, err := r.file.WriteString("2026-01-01T00:00:09Z stdout F in two "); err != nil {
				t.Fatal(err)
			}
			if _, err := r.file.WriteString("pieces\n"); err != nil {
				t.Fatal(err)
			}
			close(life)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if want += "in two pieces\n"; out.text != want {
				t.Errorf("got %q, want %q", out.text, want)
			}
			files, _, err := rotated(r.path)
			if err != nil || len(files) != 2 || !strings.HasSuffix(files[0], gzipSuffix) || strings.HasSuffix(files[1], gzipSuffix) {
				t.Errorf("rotated are %v (%v), want an old compressed one and a new one", files, err)
			}
		})
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, stamped(0, "oone"))
	ctx, stop := context.WithCancel(t.Context())
	out, done := newSheet(), make(chan error, 1)
	go func() {
		done <- (&Reader{Ends: make(ending)}).Read(ctx, Log{Path: path}, Options{Tail: -1, Follow: true}, out, nil)
	}()
	out.until("one\n")
	stop()
	if err := <-done; err == nil {
		t.Error("it ended in peace")
	}
}

func TestRotationThatWasCutShort(t *testing.T) {
	r := &reopening{path: filepath.Join(t.TempDir(), "0.log")}
	rotator := &Rotator{Writing: r, Log: slog.New(slog.DiscardHandler)}
	rotator.rotateAll(t.Context()) // the file was moved away, and then the agent was killed
	if _, err := os.Stat(r.path); err != nil {
		t.Fatal(err)
	}
	_ = r.file.Close()
	// Compressed, and killed before the old file was removed.
	zip(t, r.path+".20260101-000000.gz", "x")
	write(t, r.path+".20260101-000000", "x")
	write(t, r.path+".20260101-000001.tmp", "x")
	write(t, r.path, strings.Repeat("x", 100))
	rotator.MaxSize = 100
	rotator.rotateAll(t.Context())
	_ = r.file.Close()
	files, rubbish, err := rotated(r.path)
	if err != nil || len(files) != 2 || len(rubbish) != 0 || files[0] != r.path+".20260101-000000.gz" {
		t.Errorf("there are %v and %v (%v)", files, rubbish, err)
	}
}

func TestALogThatIsNone(t *testing.T) {
	dir := t.TempDir()
	secret, link, pipe := filepath.Join(dir, "secret"), filepath.Join(dir, "0.log"), filepath.Join(dir, "1.log")
	write(t, secret, stamped(0, "osecret"))
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

func TestContainer(t *testing.T) {
	status := func(c corev1.ContainerStatus) *corev1.Pod {
		c.Name = "c"
		p := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{c}}}
		p.Name = "p"
		return p
	}
	ended := func(id string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id}}
	}
	waits := func(reason string) corev1.ContainerState {
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
		{"running, the one before", status(corev1.ContainerStatus{ContainerID: "containerd://b", State: running,
			LastTerminationState: ended("containerd://a")}), true, "containerd://a"},
		{"no one before", status(corev1.ContainerStatus{ContainerID: "containerd://b", State: running}), true,
			`previous terminated container "c" in pod "p" not found`},
		{"ended", status(corev1.ContainerStatus{State: ended("containerd://a")}), false, "containerd://a"},
		{"ended without having begun", status(corev1.ContainerStatus{State: ended("")}), false, `container "c" in pod "p" is terminated`},
		{"the next did not begin", status(corev1.ContainerStatus{State: ended(""), LastTerminationState: ended("containerd://a")}), false,
			"containerd://a"},
		{"crashed", status(corev1.ContainerStatus{State: waits("CrashLoopBackOff"), LastTerminationState: ended("containerd://a")}), false,
			"containerd://a"},
		{"waits", status(corev1.ContainerStatus{State: waits("ContainerCreating")}), false,
			`container "c" in pod "p" is waiting to start: ContainerCreating`},
		{"no image", status(corev1.ContainerStatus{State: waits("ErrImagePull")}), false,
			`container "c" in pod "p" is waiting to start: image can't be pulled`},
		{"no image again", status(corev1.ContainerStatus{State: waits("ImagePullBackOff")}), false, `container "c" in pod "p" is waiting to start: trying and failing to pull image`},
		{"nothing known", status(corev1.ContainerStatus{}), false, `container "c" in pod "p" is waiting to start - no logs yet`},
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
	f.Add([]byte(stamped(0, "otext")))
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
			t.Errorf("%q: partial is %v, but it counts as whole: %v", line, e.Partial, endsLine(line))
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
