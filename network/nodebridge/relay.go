package nodebridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"proa.dev/internal/connlimit"
)

// Relay forwards DNS queries from an address of the machine on the bridge to a DNS server that listens only on the
// loopback interface of the machine, where nodes in other namespaces cannot reach it. It does not parse them.
type Relay struct {
	// Listen is the address that nodes query, Server that of the DNS server; both with a port.
	Listen, Server string
	// Connections bounds the TCP connections of clients; nil for no bound.
	Connections *connlimit.Budget
	Log         *slog.Logger
}

// The limits on concurrent queries, and the timeouts.
const (
	questions = 256
	talks     = 32
	patience  = 6 * time.Second
	talkTime  = 30 * time.Second
	largest   = 64 << 10
)

// Run forwards queries until ctx ends.
func (r *Relay) Run(ctx context.Context) error {
	packets, err := net.ListenPacket("udp", r.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		// A server listens on all addresses of the machine: the nodes reach it without a relay.
		<-ctx.Done()
		return nil
	}
	if err != nil {
		return fmt.Errorf("hand on questions about names: %w", err)
	}
	defer packets.Close()
	streams, err := net.Listen("tcp", r.Listen)
	if err != nil {
		return fmt.Errorf("hand on questions about names: %w", err)
	}
	defer streams.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Go(func() { cancel(r.packets(ctx, &wg, packets)) })
	wg.Go(func() { cancel(r.streams(ctx, &wg, r.Connections.Listener(streams, "dns-relay", connlimit.Public))) })
	<-ctx.Done()
	_ = packets.Close()
	_ = streams.Close()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// packets forwards UDP queries. If there are too many, the newest are dropped; clients ask again.
func (r *Relay) packets(ctx context.Context, wg *sync.WaitGroup, from net.PacketConn) error {
	turns := make(chan struct{}, questions)
	buf := make([]byte, largest)
	for {
		n, who, err := from.ReadFrom(buf)
		if err != nil {
			return err
		}
		select {
		case turns <- struct{}{}:
		default:
			continue
		}
		question := append([]byte(nil), buf[:n]...)
		wg.Go(func() {
			defer func() { <-turns }()
			answer, err := r.ask(ctx, question)
			if err == nil {
				_, err = from.WriteTo(answer, who)
			}
			if err != nil {
				r.Log.Debug("a DNS query was not answered", "err", err)
			}
		})
	}
}

func (r *Relay) ask(ctx context.Context, question []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", r.Server)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := c.Write(question); err != nil {
		return nil, err
	}
	buf := make([]byte, largest)
	n, err := c.Read(buf)
	return buf[:n], err
}

// streams forwards TCP connections.
func (r *Relay) streams(ctx context.Context, wg *sync.WaitGroup, from net.Listener) error {
	turns := make(chan struct{}, talks)
	for {
		turns <- struct{}{}
		c, err := from.Accept()
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer func() { <-turns }()
			defer c.Close()
			if err := r.talk(ctx, c); err != nil {
				r.Log.Debug("a DNS connection ended early", "err", err)
			}
		})
	}
}

func (r *Relay) talk(ctx context.Context, with net.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, talkTime)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.Server)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _, _ = c.Close(), with.Close() })()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(c, with)
		_ = c.(*net.TCPConn).CloseWrite()
	})
	_, err = io.Copy(with, c)
	_ = with.Close()
	wg.Wait()
	return err
}
