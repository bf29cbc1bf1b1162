package shutdown

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/podstate"
)

func newPod(name string, priority int32, grace int64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace}}
}

func TestPeriods(t *testing.T) {
	for _, x := range []struct {
		whole, critical time.Duration
		want            string
	}{
		{0, 0, "[] <nil>"}, {30 * time.Second, 10 * time.Second, "[{0 20} {2000000000 10}] <nil>"},
		{10 * time.Second, 0, "[{0 10} {2000000000 0}] <nil>"},
		{10 * time.Second, 20 * time.Second, "[] the time for a shutdown is 10s, of which 20s for critical Pods: the part may not be more than the whole"},
	} {
		all, err := Periods(x.whole, x.critical)
		if got := fmt.Sprint(all, err); got != x.want {
			t.Errorf("got %s, want %s", got, x.want)
		}
	}
}

func TestGroups(t *testing.T) {
	all := groups([]Period{{-5, 1}, {0, 2}, {100, 3}},
		[]*corev1.Pod{newPod("lowest", -100, 0), newPod("low", -5, 0), newPod("below", -1, 0), newPod("plain", 0, 0),
			newPod("middle", 99, 0), newPod("high", 100, 0), newPod("top", 9999, 0)})
	var got []string
	for _, g := range all {
		for _, p := range g.pods {
			got = append(got, fmt.Sprintf("%d:%s", g.Priority, p.Name))
		}
	}
	if want := "-5:lowest -5:low -5:below 0:plain 0:middle 100:high 100:top"; strings.Join(got, " ") != want {
		t.Errorf("got %v\nwant %s", got, want)
	}
}

// fakePods simulates Pods that need some time to end, and records what happens.
type fakePods struct {
	mu        sync.Mutex
	start     time.Time
	endTimes  map[types.UID]time.Time
	stopTimes map[types.UID]time.Duration
	log       []string
}

func (h *fakePods) record(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf("%v ", time.Since(h.start).Seconds())+fmt.Sprintf(format, args...))
}

func (h *fakePods) config(pods ...*corev1.Pod) Config {
	return Config{
		Pods: func() []*corev1.Pod { return pods }, Log: slog.New(slog.DiscardHandler),
		End: func(uid types.UID, v *podstate.Termination) {
			h.record("end %s %s %d %s", uid, v.Reason, *v.Grace, v.DisruptionReason)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.endTimes[uid] = time.Now().Add(h.stopTimes[uid])
		},
		HasEnded: func(uid types.UID) bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			end, ending := h.endTimes[uid]
			return ending && !time.Now().Before(end)
		},
		RecordNodeEvent: func(kind, reason, text string) { h.record("%s %s: %s", kind, reason, text) },
		Changed:         func() { h.record("changed") },
	}
}

func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakePods{start: time.Now(), endTimes: map[types.UID]time.Time{},
			stopTimes: map[types.UID]time.Duration{"quick": time.Second, "slow": time.Hour, "critical": 2 * time.Second}}
		c := h.config(newPod("critical", critical, 60), newPod("quick", 0, 5), newPod("slow", 0, 60))
		c.Periods = []Period{{critical, 10}, {0, 20}}
		m := New(c)
		if m.Status() != nil {
			t.Error("the node is shutting down already")
		}
		m.Begin(t.Context())
		h.record("done")
		want := `0 changed
0 end quick Terminated 5 TerminationByKubelet
0 end slow Terminated 20 TerminationByKubelet
20 end critical Terminated 10 TerminationByKubelet
22 done`
		if got := strings.Join(h.log, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if m.Status().Error() != "node is shutting down" {
			t.Error(m.Status())
		}
	})
}

// fileValue encodes a file descriptor, which only logind sends.
func fileValue(index uint32) value { return value{"h", func(w *writer) { w.uint32(index) }} }

func boolean(b bool) value {
	return value{"b", func(w *writer) { w.uint32(map[bool]uint32{true: 1}[b]) }}
}

func variantUint64(n uint64) value {
	return value{"v", func(w *writer) {
		w.sig("t")
		w.align(8)
		w.Write(binary.LittleEndian.AppendUint64(nil, n))
	}}
}

// fakeBus simulates D-Bus with logind.
type fakeBus struct {
	conn  *net.UnixConn
	calls chan string
	mu    sync.Mutex // guards writes
	delay uint64
}

func (d *fakeBus) serve(t *testing.T) {
	lines := bufio.NewReaderSize(d.conn, 16)
	for _, x := range [][2]string{{"\x00AUTH EXTERNAL ", "OK 123\r\n"}, {"NEGOTIATE_UNIX_FD", "AGREE_UNIX_FD\r\n"}, {"BEGIN", ""}} {
		line, err := lines.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, x[0]) {
			t.Errorf("%q %v, want %q", line, err, x[0])
			return
		}
		if _, err := io.WriteString(d.conn, x[1]); err != nil {
			t.Error(err)
		}
	}
	for {
		head := make([]byte, 16)
		if _, err := io.ReadFull(lines, head); err != nil {
			return
		}
		n, err := size(head)
		if err != nil {
			t.Error(err)
			return
		}
		rest := make([]byte, n-16)
		if _, err := io.ReadFull(lines, rest); err != nil {
			return
		}
		m, err := decode(append(head, rest...))
		if err != nil {
			t.Error(err)
			return
		}
		d.reply(t, m)
	}
}

func (d *fakeBus) reply(t *testing.T, m *message) {
	r := &message{kind: methodReturn, serial: 7, reply: m.serial}
	var rights []byte
	var args []value
	switch m.Member {
	case "Get":
		args = []value{variantUint64(d.delay)}
	case "Inhibit":
		a, b, err := os.Pipe()
		if err != nil {
			t.Error(err)
			return
		}
		defer b.Close()
		go func() { // the inhibitor lock is held until the other end is closed
			_, _ = io.ReadAll(a)
			d.calls <- "released"
		}()
		r.files = []*os.File{b}
		args, rights = []value{fileValue(0)}, syscall.UnixRights(int(b.Fd()))
	case "Refuse":
		r.kind, r.failure = failure, "org.example.No"
		args = []value{stringValue("denied")}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, _, err := d.conn.WriteMsgUnix(r.encode(args...), rights, nil); err != nil {
		return
	}
	if m.Member != "Hello" {
		d.calls <- m.Member
	}
}

func (d *fakeBus) signal(t *testing.T, down bool) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	m := &message{kind: signal, serial: 9, path: loginPath, iface: loginInterface, Member: "PrepareForShutdown"}
	if _, err := d.conn.Write(m.encode(boolean(down))); err != nil {
		t.Error(err)
	}
}

func newFakeBus(t *testing.T) (*fakeBus, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bus")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeBus{calls: make(chan string, 100), delay: uint64(time.Hour / time.Microsecond)}
	ready := make(chan struct{})
	go func() {
		c, err := l.AcceptUnix()
		if err == nil {
			d.mu.Lock()
			d.conn = c
			d.mu.Unlock()
			close(ready)
			d.serve(t)
		}
	}()
	t.Cleanup(func() { l.Close(); d.conn.Close() })
	return d, path
}

func (d *fakeBus) wantCalls(t *testing.T, calls ...string) {
	t.Helper()
	for _, want := range calls {
		select {
		case got := <-d.calls:
			if got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s was not called", want)
		}
	}
}

// TestLogind announces and cancels a shutdown over a real socket.
func TestLogind(t *testing.T) {
	d, path := newFakeBus(t)
	h := &fakePods{start: time.Now(), endTimes: map[types.UID]time.Time{}}
	c := h.config(newPod("a", 0, 1))
	c.Periods = []Period{{0, 20}}
	c.Bus = func(ctx context.Context) (*Bus, error) { return Dial(ctx, path) }
	m := New(c)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	d.wantCalls(t, "Get", "AddMatch", "Inhibit")
	d.signal(t, true)
	d.wantCalls(t, "released")
	if m.Status() == nil {
		t.Error("the node is not shutting down")
	}
	d.signal(t, false)
	d.wantCalls(t, "Inhibit")
	for end := time.Now().Add(30 * time.Second); m.Status() != nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if m.Status() != nil {
		t.Error("the node is still shutting down")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	d.wantCalls(t, "released")
}

func TestBusErrors(t *testing.T) {
	d, path := newFakeBus(t)
	b, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Call("x", "/x", "x", "Refuse"); err == nil || err.Error() != "org.example.No: denied" {
		t.Error(err)
	}
	d.conn.Close()
	if _, err := b.Call("x", "/x", "x", "Anything"); err == nil {
		t.Error("a closed bus answers")
	}
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a bus that does not exist answers")
	}
	m := New(Config{Periods: []Period{{0, 1}}, Bus: func(context.Context) (*Bus, error) { return nil, ErrNoBus },
		Log: slog.New(slog.DiscardHandler)})
	if err := m.Run(t.Context()); !errors.Is(err, ErrNoBus) {
		t.Error(err)
	}
}

func TestOverrideDelay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conf.d")
	if err := overrideDelay(dir, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, loginFile))
	if err != nil || string(text) != "# Written by proa, so that Pods can end before the machine does\n[Login]\nInhibitDelayMaxSec=90\n" {
		t.Errorf("%q %v", text, err)
	}
}

// TestEncodeHello compares a message with the bytes that other implementations send.
func TestEncodeHello(t *testing.T) {
	m := &message{kind: methodCall, serial: 1, path: "/org/freedesktop/DBus", iface: "org.freedesktop.DBus", Member: "Hello",
		destination: "org.freedesktop.DBus"}
	want := "l\x01\x00\x01\x00\x00\x00\x00\x01\x00\x00\x00n\x00\x00\x00" +
		"\x01\x01o\x00\x15\x00\x00\x00/org/freedesktop/DBus\x00\x00\x00" +
		"\x02\x01s\x00\x14\x00\x00\x00org.freedesktop.DBus\x00\x00\x00\x00" +
		"\x03\x01s\x00\x05\x00\x00\x00Hello\x00\x00\x00" +
		"\x06\x01s\x00\x14\x00\x00\x00org.freedesktop.DBus\x00\x00\x00\x00"
	got := string(m.encode())
	// The length of the fields does not include the padding to eight bytes at the end.
	want = want[:12] + string([]byte{byte(len(want) - 16 - 3)}) + want[13:]
	if got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&message{kind: signal, serial: 1, path: "/a", iface: "b", Member: "c"}).encode(boolean(true), stringValue("x")))
	f.Add((&message{kind: methodReturn, reply: 3}).encode(variantUint64(7)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		_, _ = m.body().boolean()
		_, _ = m.body().variantUint64()
		_ = m.body().str()
	})
}
