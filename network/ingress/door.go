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

	"golang.org/x/net/netutil"

	"proa.dev/network/route"
)

const (
	// maxConnections bounds the clients of one port.
	maxConnections = 16384
	// The pauses after a port could not be opened.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// goodbye is how long requests may take that are there when a port is closed.
	goodbye = 2 * time.Second
)

// door is a port at which clients come in. It is open while it is wanted. One goroutine uses it.
type door struct {
	port   int
	secure bool
	listen func(network, address string) (net.Listener, error)
	proxy  *route.Proxy
	lost   func() // called when the port was closed
	log    *slog.Logger

	server *http.Server // nil while it is closed
	ended  chan struct{}
	wg     sync.WaitGroup
	pause  time.Duration
	retry  *time.Timer // nil unless it could not be opened
	due    time.Time
}

// set opens or closes the port. first says that it is the first failure after things were well.
func (d *door) set(ctx context.Context, wanted bool) (first bool, err error) {
	if d.server != nil {
		select {
		case <-d.ended:
			d.server = nil // somebody has closed it
		default:
		}
	}
	if !wanted {
		d.retry, d.pause = nil, firstPause
	}
	switch {
	case d.port == 0 || wanted == (d.server != nil) || wanted && d.retry != nil && time.Now().Before(d.due):
		return false, nil
	case !wanted:
		d.shut(ctx)
		return false, nil
	}
	l, err := d.listen("tcp", fmt.Sprintf(":%d", d.port))
	if err != nil {
		first = d.retry == nil
		d.retry, d.due = time.NewTimer(d.pause), time.Now().Add(d.pause)
		d.pause = min(2*d.pause, longestPause)
		return first, err
	}
	d.retry, d.pause = nil, firstPause
	server, ended := d.proxy.Server(), make(chan struct{})
	d.server, d.ended = server, ended
	d.log.Info("serving Ingresses", "port", d.port, "tls", d.secure)
	l = netutil.LimitListener(l, maxConnections)
	d.wg.Go(func() {
		defer d.lost()
		defer close(ended)
		var err error
		if d.secure {
			err = server.ServeTLS(l, "", "")
		} else {
			err = server.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("a port of Ingresses was closed; it is opened again", "port", d.port, "err", err)
		}
	})
	return false, nil
}

// again is when the port has to be looked at.
func (d *door) again() <-chan time.Time {
	if d.retry == nil {
		return nil
	}
	return d.retry.C
}

// open says that clients can come in.
func (d *door) open() bool { return d.server != nil }

// shut closes the port now, and lets requests that are on their way finish.
func (d *door) shut(ctx context.Context) {
	server := d.server
	d.server = nil
	d.log.Info("no Ingress needs the port any more", "port", d.port)
	d.wg.Go(func() {
		ctx, stop := context.WithTimeout(ctx, longestPause)
		defer stop()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
}

// close ends everything.
func (d *door) close(ctx context.Context) {
	if d.server != nil {
		ctx, stop := context.WithTimeout(ctx, goodbye)
		defer stop()
		if d.server.Shutdown(ctx) != nil {
			_ = d.server.Close()
		}
	}
	d.wg.Wait()
}
