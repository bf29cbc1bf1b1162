package machine

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// TestSocketsAreHandedOver checks that the next agent gets a listening socket under its name and no other one, that connections which wait
// in the socket are not lost, and that the former agent accepts nothing more when the next one serves.
func TestSocketsAreHandedOver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s")
	log := slog.New(slog.DiscardHandler)
	old := newSockets(file, log)
	l, err := old.listen("http", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- old.handOver(ctx, file) }()
	defer func() {
		stop()
		<-ended
	}()
	var next *sockets
	for next == nil || next.former == nil { // until the other side listens
		next = newSockets(file, log)
	}
	mine, err := next.listen("http", "127.0.0.1:1") // it would not be opened anew: this port is not free for everybody
	if err != nil {
		t.Fatal(err)
	}
	other, err := next.listen("https", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if mine.Addr().String() != l.Addr().String() || other.Addr().String() == l.Addr().String() {
		t.Fatalf("the next agent listens at %s and %s, the former one at %s", mine.Addr(), other.Addr(), l.Addr())
	}
	waiting, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	next.serving()
	<-old.replaced
	old.drain.Wait(t.Context(), 0)
	old.mu.Lock()
	for _, k := range old.open {
		k.left = true
		_ = k.TCPListener.Close()
	}
	old.mu.Unlock()
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") })
	server := &http.Server{Handler: answer} //nolint:gosec // G112: of a test
	go func() { _ = server.Serve(mine) }()
	defer server.Close()
	if _, err := io.WriteString(waiting, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(waiting); err != nil || string(answer[len(answer)-4:]) != "next" {
		t.Errorf("a connection that waited got %q, %v", answer, err)
	}
	select {
	case err := <-accepted:
		t.Errorf("the former agent goes on accepting, or fails: %v", err)
	default:
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if <-accepted == nil {
		t.Error("a connection was accepted at a socket that was closed")
	}
}
