package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/network/httpproxy"
)

const (
	// maxBackoff is the longest pause between attempts to open a port or to write a status.
	maxBackoff = 30 * time.Second
	// closeTimeout is how long requests may take that are in flight when a port is closed because no Ingress needs it.
	closeTimeout = 30 * time.Second
	// shutdownTimeout is how long requests may take that are in flight when the server stops.
	shutdownTimeout = 2 * time.Second
)

func newBackoff() wait.Backoff { return wait.Backoff{First: time.Second, Max: maxBackoff} }

// portServer serves the proxy at one port of the machine. The port is open while it is wanted. One goroutine uses it.
type portServer struct {
	port    int
	secure  bool
	listen  func(name, address string) (net.Listener, error)
	proxy   *httpproxy.Proxy
	onClose func() // called when the port was closed
	log     *slog.Logger

	server  *http.Server // nil while the port is closed
	ended   chan struct{}
	wg      sync.WaitGroup
	backoff wait.Backoff
	retry   *time.Timer // nil unless the port could not be opened
	due     time.Time   // when retry fires
}

// set opens or closes the port. first is true for the first failure after a success.
func (p *portServer) set(ctx context.Context, wanted bool) (first bool, err error) {
	if p.server != nil {
		select {
		case <-p.ended:
			p.server = nil // it ended with an error
		default:
		}
	}
	if !wanted {
		p.retry = nil
		p.backoff.Reset()
	}
	switch {
	case p.port == 0 || wanted == (p.server != nil) || wanted && p.retry != nil && time.Now().Before(p.due):
		return false, nil
	case !wanted:
		p.shut(ctx)
		return false, nil
	}
	l, err := p.listen(fmt.Sprintf("ingress port %d", p.port), fmt.Sprintf(":%d", p.port))
	if err != nil {
		first = p.retry == nil
		pause := p.backoff.Next()
		p.retry, p.due = time.NewTimer(pause), time.Now().Add(pause)
		return first, err
	}
	p.retry = nil
	p.backoff.Reset()
	server, ended := p.proxy.Server(), make(chan struct{})
	p.server, p.ended = server, ended
	p.log.Info("serving Ingresses", "port", p.port, "tls", p.secure)
	p.wg.Go(func() {
		defer p.onClose()
		defer close(ended)
		var err error
		if p.secure {
			err = server.ServeTLS(l, "", "")
		} else {
			err = server.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			p.log.Error("a port of Ingresses was closed; it is opened again", "port", p.port, "err", err)
		}
	})
	return false, nil
}

// retryTime receives a value when set is to be called again, because the port could not be opened.
func (p *portServer) retryTime() <-chan time.Time {
	if p.retry == nil {
		return nil
	}
	return p.retry.C
}

// isOpen reports whether clients can connect.
func (p *portServer) isOpen() bool { return p.server != nil }

// shut stops listening at once, and lets requests in flight finish in the background.
func (p *portServer) shut(ctx context.Context) {
	server := p.server
	p.server = nil
	p.log.Info("no Ingress needs the port any more", "port", p.port)
	p.wg.Go(func() {
		ctx, stop := context.WithTimeout(ctx, closeTimeout)
		defer stop()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
}

// close stops listening, and waits for requests in flight and for all goroutines.
func (p *portServer) close(ctx context.Context) {
	if p.server != nil {
		ctx, stop := context.WithTimeout(ctx, shutdownTimeout)
		defer stop()
		if p.server.Shutdown(ctx) != nil {
			_ = p.server.Close()
		}
	}
	p.wg.Wait()
}
