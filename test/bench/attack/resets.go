package attack

import (
	"errors"

	"golang.org/x/net/http2"
)

// resetAttacks are about requests that are ended early, and requests beyond what a connection may have.
func resetAttacks() []Attack {
	version := fieldBlock("GET", "/version")
	closed := h2options{settings: []http2.Setting{zeroWindow()}}
	return []Attack{
		{Name: "rapid reset", Unit: "requests", Connections: 4, Planned: 40_000,
			script: flood(h2options{}, nil, func(c *h2conn, _ int) error {
				id, err := c.headers(version, true)
				return errors.Join(err, c.WriteRSTStream(id, http2.ErrCodeCancel))
			})},
		{Name: "MadeYouReset, window grows by nothing", Unit: "requests", Connections: 4, Planned: 40_000,
			script: flood(h2options{}, nil, func(c *h2conn, _ int) error {
				id, err := c.headers(version, true)
				return errors.Join(err, c.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4)))
			})},
		{Name: "MadeYouReset, window overflows", Unit: "requests", Connections: 4, Planned: 40_000,
			script: flood(h2options{}, nil, func(c *h2conn, _ int) error {
				id, err := c.headers(version, true)
				return errors.Join(err, c.WriteWindowUpdate(id, 1<<31-1))
			})},
		{Name: "MadeYouReset, DATA after the end", Unit: "requests", Connections: 4, Planned: 40_000,
			script: flood(h2options{}, nil, func(c *h2conn, _ int) error {
				id, err := c.headers(version, true)
				return errors.Join(err, c.WriteData(id, false, nil))
			})},
		{Name: "1,000 requests at a time on a connection", Unit: "requests", Connections: 8, Planned: 8_000,
			script: flood(closed, nil, ask(version))},
		{Name: "requests after the client's own GOAWAY", Unit: "requests", Connections: 4, Planned: 20_000,
			script: flood(h2options{}, func(c *h2conn) error { return c.WriteGoAway(0, http2.ErrCodeNo, nil) }, ask(version))},
		{Name: "requests after the server's GOAWAY", Unit: "requests", Connections: 4, Planned: 200_000,
			script: flood(h2options{}, func(c *h2conn) error { return c.WriteData(0, false, nil) }, ask(version))},
	}
}
