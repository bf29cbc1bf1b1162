package attack

import (
	"bytes"
	"context"
	"io"
	"time"

	"golang.org/x/net/http2"
)

// slowAttacks are connections that say little or nothing, slowly.
func slowAttacks() []Attack {
	return []Attack{
		{Name: "connections without a ClientHello", Unit: "connections", Connections: 1000, Planned: 1000, Silent: true,
			script: func(ctx context.Context, a *attacker) error {
				l, err := a.dial(ctx)
				if err != nil {
					return err
				}
				a.tally.sent.Add(1)
				l.readAnswers(a.tally)
				return nil
			}},
		{Name: "slow requests of HTTP/1.1", Unit: "pieces", Connections: 200, Planned: 800, Silent: true,
			script: func(ctx context.Context, a *attacker) error {
				return piecemeal(ctx, a, "http/1.1", "GET /version HTTP/1.1\r\nHost: localhost\r\n", "X-Slow: 1\r\n")
			}},
		{Name: "slow prefaces of HTTP/2", Unit: "pieces", Connections: 200, Planned: 800, Silent: true,
			script: func(ctx context.Context, a *attacker) error {
				return piecemeal(ctx, a, "h2", http2.ClientPreface[:8], http2.ClientPreface[8:9])
			}},
		{Name: "HTTP/2 without requests", Unit: "connections", Connections: 200, Planned: 200,
			script: func(ctx context.Context, a *attacker) error {
				c, err := a.dialHTTP2(ctx, h2options{})
				if err != nil {
					return err
				}
				a.tally.sent.Add(1)
				return c.confirm()
			}},
		{Name: "requests, one byte a TLS record", Unit: "bytes", Connections: 8, Planned: 80_000, script: byteByByte},
	}
}

// piecemeal sends the beginning of what a server waits for, and then a little more now and then.
func piecemeal(ctx context.Context, a *attacker, protocol, begin, more string) error {
	l, err := a.dialTLS(ctx, protocol)
	if err != nil {
		return err
	}
	l.readAnswers(a.tally)
	return every(ctx, 400*time.Millisecond, func(i int) error {
		piece := more
		if i == 0 {
			piece = begin
		}
		if _, err := io.WriteString(l.Conn, piece); err != nil {
			l.failed(err)
			return err
		}
		a.tally.sent.Add(1)
		return nil
	})
}

// byteByByte sends requests in records of one byte each.
func byteByByte(ctx context.Context, a *attacker) error {
	c, err := a.dialHTTP2(ctx, h2options{})
	if err != nil {
		return err
	}
	block := fieldBlock("GET", "/version")
	var request bytes.Buffer
	framer := http2.NewFramer(&request, nil)
	for sent := 0; sent < a.units && !c.ended() && ctx.Err() == nil; {
		request.Reset()
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream(), BlockFragment: block, EndStream: true,
			EndHeaders: true}); err != nil {
			return err
		}
		for request.Len() > 0 {
			if _, err := c.Conn.Write(request.Next(1)); err != nil {
				c.failed(err)
				return err
			}
			sent++
			a.tally.sent.Add(1)
		}
	}
	return c.confirm()
}
