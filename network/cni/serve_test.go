package cni

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// failingListener cannot accept the first connections.
type failingListener struct {
	*net.UnixListener
	fails []error
}

func (l *failingListener) AcceptUnix() (*net.UnixConn, error) {
	if len(l.fails) > 0 {
		err := l.fails[0]
		l.fails = l.fails[1:]
		return nil, err
	}
	return l.UnixListener.AcceptUnix()
}

type handlerFunc func(req *Request) (*Result, error)

func (f handlerFunc) CNI(_ context.Context, req *Request, _ *Config, _ *os.File) (*Result, error) {
	return f(req)
}

// TestServeSurvivesFailedAccepts serves a request after accepting failed, as it does for want of file descriptors, and ends with an
// error only when the listener is closed.
func TestServeSurvivesFailedAccepts(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "folder", "cni.sock")
	l, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{socket: 0o600, filepath.Dir(socket): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("the mode of %s is %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	done := make(chan error, 1)
	go func() {
		done <- Serve(t.Context(), &failingListener{l, []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED}},
			handlerFunc(func(req *Request) (*Result, error) { return nil, Errorf(TryAgainLater, "heard %s", req.Command) }),
			slog.New(slog.DiscardHandler))
	}()
	in := `{"cniVersion":"1.1.0","name":"x","socket":"` + socket + `"}`
	env := map[string]string{"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "a", "CNI_NETNS": "/proc/self/ns/net", "CNI_IFNAME": "eth0"}
	if _, out := runPlugin(env, in); !strings.Contains(out, "heard ADD") {
		t.Errorf("got %s", out)
	}
	// A message of any size is read up to the bound only.
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	chunk := bytes.Repeat([]byte("["), 64<<10)
	var sent int
	for sent < 64*maxMessage {
		n, err := conn.Write(chunk)
		if sent += n; err != nil {
			break
		}
	}
	if sent > 4*maxMessage {
		t.Errorf("%d bytes of a request were taken", sent)
	}
	_, _ = io.Copy(io.Discard, conn)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
}
