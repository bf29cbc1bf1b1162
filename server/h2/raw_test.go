package h2

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"proa.dev/server/h2/h2wire"
)

// rawCase is what a client sends, often against the protocol, and the event with which the server reacts.
type rawCase struct {
	name string
	send func(*rawClient)
	want string // the event, or several allowed ones separated by "|"
}

// runRawCases runs each case on a new connection, which begin prepares. After an error of a stream the connection must
// still work.
func runRawCases(t *testing.T, cases []rawCase, begin func(*rawClient)) {
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := dialWithoutPreface(t, rawConfig(), basicHandler)
			begin(p)
			c.send(p)
			p.expectEvent(strings.Split(c.want, "|")...)
			if strings.HasPrefix(c.want, "reset") {
				p.expectAlive()
			}
		})
	}
}

// TestPreface checks that a connection begins with the preface and the settings of the client.
func TestPreface(t *testing.T) {
	runRawCases(t, []rawCase{
		{"another preface", func(p *rawClient) { p.sendText(strings.Repeat("GET / HTTP/1.1\r\n\r\n", 2)) }, "goaway PROTOCOL_ERROR"},
		{"a ping first", func(p *rawClient) { p.sendText(h2wire.Preface); p.must(p.WritePing(false, [8]byte{})) }, "goaway PROTOCOL_ERROR"},
		{"a request first", func(p *rawClient) { p.sendText(h2wire.Preface); p.sendRequest(1, "/") }, "goaway PROTOCOL_ERROR"},
		{"an acknowledgement first", func(p *rawClient) { p.sendText(h2wire.Preface); p.must(p.WriteSettingsAck()) },
			"goaway PROTOCOL_ERROR"},
		{"nothing wrong", func(p *rawClient) { p.sendPreface(); p.sendRequest(1, "/") }, "answer 1 200"},
	}, func(*rawClient) {})
}

// TestConnectionFrames checks the sizes and places of frames that are about the connection.
func TestConnectionFrames(t *testing.T) {
	settings := func(payload string) func(*rawClient) {
		return func(p *rawClient) { p.sendFrame(http2.FrameSettings, 0, 0, payload) }
	}
	runRawCases(t, []rawCase{
		{"a frame too large", func(p *rawClient) { p.sendFrame(http2.FrameType(99), 0, 0, strings.Repeat("x", 16<<10+1)) },
			"goaway FRAME_SIZE_ERROR"},
		{"data too large", func(p *rawClient) {
			p.sendRequestHeader(1, "/")
			p.sendFrame(http2.FrameData, 0, 1, strings.Repeat("x", 16<<10+1))
		},
			"goaway FRAME_SIZE_ERROR"},
		{"settings of five bytes", settings("12345"), "goaway FRAME_SIZE_ERROR"},
		{"SETTINGS on a stream", func(p *rawClient) { p.sendFrame(http2.FrameSettings, 0, 1, "") }, "goaway PROTOCOL_ERROR"},
		{"an acknowledgement with settings", func(p *rawClient) {
			p.sendFrame(http2.FrameSettings, http2.FlagSettingsAck, 0,
				encodeSetting(1, 1))
		},
			"goaway FRAME_SIZE_ERROR"},
		{"push 2", settings(encodeSetting(http2.SettingEnablePush, 2)), "goaway PROTOCOL_ERROR"},
		{"a window of 2^31", settings(encodeSetting(http2.SettingInitialWindowSize, 1<<31)), "goaway FLOW_CONTROL_ERROR"},
		{"frames of 100", settings(encodeSetting(http2.SettingMaxFrameSize, 100)), "goaway PROTOCOL_ERROR"},
		{"frames of 2^24", settings(encodeSetting(http2.SettingMaxFrameSize, 1<<24)), "goaway PROTOCOL_ERROR"},
		{"an unknown setting", func(p *rawClient) { settings(encodeSetting(0xbeef, 1))(p); p.sendRequest(1, "/") },
			"answer 1 200"},
		{"a ping", func(p *rawClient) { p.sendFrame(http2.FramePing, 0, 0, "8 bytes.") }, "pong 8 bytes."},
		{"a ping of seven bytes", func(p *rawClient) { p.sendFrame(http2.FramePing, 0, 0, "7 bytes") }, "goaway FRAME_SIZE_ERROR"},
		{"PING on a stream", func(p *rawClient) { p.sendFrame(http2.FramePing, 0, 1, "8 bytes.") }, "goaway PROTOCOL_ERROR"},
		{"an unsolicited PING acknowledgement", func(p *rawClient) {
			p.sendFrame(http2.FramePing, http2.FlagPingAck, 0, "8 bytes.")
			p.sendRequest(1, "/")
		},
			"answer 1 200"},
		{"an unknown frame", func(p *rawClient) {
			p.sendFrame(0xfe, 0xff, 7, "what")
			p.sendFrame(0x99, 0, 0, "")
			p.sendRequest(1, "/")
		}, "answer 1 200"},
		{"a push", func(p *rawClient) {
			p.sendFrame(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, encodeUint32s(2))
		},
			"goaway PROTOCOL_ERROR"},
		{"GOAWAY", func(p *rawClient) { p.must(p.WriteGoAway(0, 0, nil)); p.sendRequest(1, "/") }, "answer 1 200"},
		{"GOAWAY on a stream", func(p *rawClient) { p.sendFrame(http2.FrameGoAway, 0, 1, encodeUint32s(0, 0)) }, "goaway PROTOCOL_ERROR"},
		{"GOAWAY of three bytes", func(p *rawClient) { p.sendFrame(http2.FrameGoAway, 0, 0, "bye") }, "goaway FRAME_SIZE_ERROR"},
	}, func(p *rawClient) { p.sendPreface() })
}

// TestWindowFrames checks that a WINDOW_UPDATE frame adds at least 1, to at most 2^31-1, and only to a stream that was opened.
func TestWindowFrames(t *testing.T) {
	runRawCases(t, []rawCase{
		{"zero for the connection", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 0, encodeUint32s(0)) },
			"goaway PROTOCOL_ERROR"},
		{"zero for a stream", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 1, encodeUint32s(0)) },
			"reset 1 PROTOCOL_ERROR"},
		{"only the reserved bit", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 1, encodeUint32s(1<<31)) },
			"reset 1 PROTOCOL_ERROR"},
		{"too much for the connection", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 0, encodeUint32s(1<<31-1)) },
			"goaway FLOW_CONTROL_ERROR"},
		{"too much for a stream", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 1, encodeUint32s(1<<31-1)) },
			"reset 1 FLOW_CONTROL_ERROR"},
		{"too much by settings", func(p *rawClient) {
			p.must(p.WriteWindowUpdate(1, 1<<31-1-h2wire.DefaultWindow))
			p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: h2wire.DefaultWindow + 1}))
		}, "goaway FLOW_CONTROL_ERROR"},
		{"three bytes", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 1, "123") }, "goaway FRAME_SIZE_ERROR"},
		{"of an idle stream", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 3, encodeUint32s(1)) }, "goaway PROTOCOL_ERROR"},
		{"of a stream that was reset", func(p *rawClient) {
			p.must(p.WriteRSTStream(1, http2.ErrCodeCancel))
			p.must(p.WriteWindowUpdate(1, 1))
			p.sendRequest(3, "/")
		}, "answer 3 200"},
	}, func(p *rawClient) { p.sendPreface(); p.sendRequest(1, "/hold") })
}

// TestStreamFrames checks frames for streams in each state. Stream 1 waits for its body, the handler of stream 3 runs
// with the complete request, and stream 5 has been answered.
func TestStreamFrames(t *testing.T) {
	runRawCases(t, []rawCase{
		{"a reset of no stream", func(p *rawClient) { p.sendFrame(http2.FrameRSTStream, 0, 0, encodeUint32s(0)) }, "goaway PROTOCOL_ERROR"},
		{"a reset of an idle stream", func(p *rawClient) { p.sendFrame(http2.FrameRSTStream, 0, 9, encodeUint32s(0)) },
			"goaway PROTOCOL_ERROR"},
		{"a reset of three bytes", func(p *rawClient) { p.sendFrame(http2.FrameRSTStream, 0, 1, "123") }, "goaway FRAME_SIZE_ERROR"},
		{"data of no stream", func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 0, "x") }, "goaway PROTOCOL_ERROR"},
		{"data of an idle stream", func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 9, "x") }, "goaway PROTOCOL_ERROR"},
		{"data after the end", func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 3, "x") }, "reset 3 STREAM_CLOSED"},
		{"data of an ended stream", func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 5, "x") },
			"reset 5 STREAM_CLOSED|goaway STREAM_CLOSED"},
		{"data with too much padding", func(p *rawClient) { p.sendFrame(http2.FrameData, http2.FlagDataPadded, 1, "\x05xxxx") },
			"goaway PROTOCOL_ERROR"},
		{"data that is all padding", func(p *rawClient) {
			p.sendFrame(http2.FrameData, http2.FlagDataPadded|http2.FlagDataEndStream, 1, "\x04xxxx")
		}, "answer 1 200"},
		{"padded data without its length", func(p *rawClient) { p.sendFrame(http2.FrameData, http2.FlagDataPadded, 1, "") },
			"goaway PROTOCOL_ERROR|goaway FRAME_SIZE_ERROR"},
		{"fields on no stream", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 4, 0, string(p.encodeRequest("GET", "/"))) },
			"goaway PROTOCOL_ERROR"},
		{"fields on an even stream", func(p *rawClient) { p.sendRequest(8, "/") }, "goaway PROTOCOL_ERROR"},
		{"fields on an ended stream", func(p *rawClient) { p.sendRequest(5, "/") }, "goaway STREAM_CLOSED|goaway PROTOCOL_ERROR"},
		{"fields on a lower stream", func(p *rawClient) { p.sendRequest(9, "/hold"); p.sendRequest(7, "/") },
			"goaway STREAM_CLOSED|goaway PROTOCOL_ERROR"},
		{"fields after the end", func(p *rawClient) { p.sendRequest(3, "/") }, "reset 3 STREAM_CLOSED"},
		{"fields with too much padding", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 0xc, 9, "\xff"+string(p.encodeRequest("GET", "/")))
		},
			"goaway PROTOCOL_ERROR"},
		{"fields without their priority", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 0x24, 9, "1234") },
			"goaway FRAME_SIZE_ERROR"},
		{"a continuation without a header", func(p *rawClient) { p.sendFrame(http2.FrameContinuation, 4, 1, "") }, "goaway PROTOCOL_ERROR"},
		{"PRIORITY on stream 0", func(p *rawClient) { p.sendFrame(http2.FramePriority, 0, 0, encodeUint32s(1)+"x") },
			"goaway PROTOCOL_ERROR"},
		{"a priority of four bytes", func(p *rawClient) { p.sendFrame(http2.FramePriority, 0, 1, encodeUint32s(3)) },
			"reset 1 FRAME_SIZE_ERROR"},
		{"a priority that depends on itself", func(p *rawClient) { p.sendFrame(http2.FramePriority, 0, 1, encodeUint32s(1)+"x") },
			"reset 1 PROTOCOL_ERROR"},
		{"a priority of an idle stream", func(p *rawClient) {
			p.sendFrame(http2.FramePriority, 0, 99, encodeUint32s(3)+"x")
			p.sendRequest(7, "/")
		},
			"answer 7 200"},
		{"a request that depends on itself", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 0x25, 9, encodeUint32s(9)+"x"+string(p.encodeRequest("GET", "/")))
		},
			"reset 9 PROTOCOL_ERROR"},
		{"a request with priority and padding", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 0x2d, 9, "\x03"+encodeUint32s(3)+"x"+string(p.encodeRequest("GET", "/"))+"xxx")
		}, "answer 9 200"},
	}, func(p *rawClient) {
		p.sendPreface()
		p.sendRequestHeader(1, "/")
		p.sendRequest(3, "/hold")
		p.sendRequest(5, "/")
		p.expectEvent("answer 5 200")
	})
}

// TestFieldBlocks checks that the field block of a request comes in one piece, and is compressed as RFC 7541 says.
func TestFieldBlocks(t *testing.T) {
	runRawCases(t, []rawCase{
		{"in pieces", func(p *rawClient) {
			b := string(p.encodeRequest("GET", "/"))
			p.sendFrame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, b[:3])
			p.sendFrame(http2.FrameContinuation, 0, 1, "")
			p.sendFrame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, b[3:])
		}, "answer 1 200"},
		{"interrupted", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 1, 1, string(p.encodeRequest("GET", "/")))
			p.sendFrame(http2.FramePing, 0, 0, "8 bytes.")
		}, "goaway PROTOCOL_ERROR"},
		{"interrupted by an unknown frame", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 1, 1, string(p.encodeRequest("GET", "/")))
			p.sendFrame(0xfe, 0, 1, "")
		}, "goaway PROTOCOL_ERROR"},
		{"continued on another stream", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 1, 1, string(p.encodeRequest("GET", "/")))
			p.sendFrame(http2.FrameContinuation, 4, 3, "")
		}, "goaway PROTOCOL_ERROR"},
		{"an index out of range", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, "\xff\xff\x01") },
			"goaway COMPRESSION_ERROR"},
		{"a table larger than allowed", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, "\x3f\xff\xff\x01") },
			"goaway COMPRESSION_ERROR"},
		{"cut off", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, "\x82\x00\x05te") }, "goaway COMPRESSION_ERROR"},
		{"bad on a stream that ended",
			func(p *rawClient) {
				p.sendRequest(1, "/")
				p.expectEvent("answer 1 200")
				p.sendFrame(http2.FrameHeaders, 5, 1, "\xff\xff\x01")
			},
			"goaway COMPRESSION_ERROR|goaway STREAM_CLOSED"},
	}, func(p *rawClient) { p.sendPreface() })
}

// malformedRequestCase sends a request of the fields given, in order, instead of a valid one.
func malformedRequestCase(name string, pairs ...string) rawCase {
	return rawCase{name, func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields(pairs...))) },
		"reset 1 PROTOCOL_ERROR"}
}

// TestMalformedRequests checks that a malformed request ends its stream, and only that.
func TestMalformedRequests(t *testing.T) {
	const m, s, a, path = ":method", ":scheme", ":authority", ":path"
	good := []string{m, "GET", s, "https", a, "proa", path, "/"}
	withFields := func(name string, pairs ...string) rawCase {
		return malformedRequestCase(name, append(good[:len(good):len(good)], pairs...)...)
	}
	runRawCases(t, []rawCase{
		withFields("a name in upper case", "X-Upper", "x"),
		withFields("a name with a space", "x y", "x"),
		withFields("an empty name", "", "x"),
		withFields("a value with a line break", "x", "a\r\nb: c"),
		withFields("a pseudo field twice", path, "/x"),
		withFields("a pseudo field that is of answers", ":status", "200"),
		withFields("an unknown pseudo field", ":shape", "round"),
		withFields("connection", "connection", "close"),
		withFields("keep-alive", "keep-alive", "timeout=5"),
		withFields("proxy-connection", "proxy-connection", "close"),
		withFields("transfer-encoding", "transfer-encoding", "chunked"),
		withFields("upgrade", "upgrade", "websocket"),
		withFields("te", "te", "gzip"),
		withFields("a length and no body", "content-length", "1"),
		withFields("two lengths", "content-length", "0", "content-length", "1"),
		withFields("an invalid length", "content-length", "-1"),
		withFields("a length of nothing", "content-length", ""),
		malformedRequestCase("an empty pseudo field twice", m, "GET", s, "https", a, "proa", path, "", path, "/"),
		malformedRequestCase("a pseudo field behind others", m, "GET", s, "https", path, "/", "x", "x", a, "proa"),
		malformedRequestCase("no method", s, "https", a, "proa", path, "/"),
		malformedRequestCase("no scheme", m, "GET", a, "proa", path, "/"),
		malformedRequestCase("no path", m, "GET", s, "https", a, "proa"),
		malformedRequestCase("an empty path", m, "GET", s, "https", a, "proa", path, ""),
		malformedRequestCase("an invalid path", m, "GET", s, "https", a, "proa", path, "x"),
		malformedRequestCase("an invalid method", m, "G T", s, "https", a, "proa", path, "/"),
		malformedRequestCase("an invalid authority", m, "GET", s, "https", a, "pr oa", path, "/"),
		malformedRequestCase("CONNECT with a path", m, "CONNECT", s, "https", a, "proa", path, "/"),
		malformedRequestCase("CONNECT without an authority", m, "CONNECT"),
		malformedRequestCase("nothing"),
		{"te with trailers", func(p *rawClient) { p.sendRequest(1, "/", "te", "trailers") }, "answer 1 200"},
	}, func(p *rawClient) { p.sendPreface() })
}

// TestMalformedBodies checks that a body has its Content-Length, and that only a trailer follows it.
func TestMalformedBodies(t *testing.T) {
	end := http2.Flags(http2.FlagDataEndStream)
	trailer := func(flags http2.Flags, pairs ...string) func(*rawClient) {
		return func(p *rawClient) {
			p.sendRequestHeader(1, "/", "content-length", "2")
			p.sendFrame(http2.FrameData, 0, 1, "xx")
			p.sendFrame(http2.FrameHeaders, flags, 1, string(p.encodeFields(pairs...)))
		}
	}
	sized := func(size, data string) func(*rawClient) {
		return func(p *rawClient) {
			p.sendRequestHeader(1, "/", "content-length", size)
			p.sendFrame(http2.FrameData, end, 1, data)
		}
	}
	runRawCases(t, []rawCase{
		{"too little", sized("5", "1234"), "reset 1 PROTOCOL_ERROR"},
		{"too much", sized("5", "123456"), "reset 1 PROTOCOL_ERROR"},
		{"too little of much", sized("500000", "1234"), "reset 1 PROTOCOL_ERROR"},
		{"a body with the Content-Length 0", sized("0", "1"), "reset 1 PROTOCOL_ERROR"},
		{"as much as the Content-Length", sized("5", "12345"), "answer 1 200"},
		{"too much before the end", func(p *rawClient) {
			p.sendRequestHeader(1, "/", "content-length", "1")
			p.sendFrame(http2.FrameData, 0, 1, "12")
		},
			"reset 1 PROTOCOL_ERROR"},
		{"a trailer after too little", func(p *rawClient) {
			p.sendRequestHeader(1, "/", "content-length", "2")
			p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields("x", "x")))
		}, "reset 1 PROTOCOL_ERROR"},
		{"a trailer", trailer(5, "x", "x"), "answer 1 200"},
		{"a trailer that is not the end", trailer(4, "x", "x"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer with a path", trailer(5, ":path", "/"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer with an empty path", trailer(5, ":path", ""), "reset 1 PROTOCOL_ERROR"},
		{"a trailer with a status", trailer(5, ":status", "200"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer in upper case", trailer(5, "X", "x"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer of a request that was refused", func(p *rawClient) {
			p.sendRequestHeader(1, "/", "te", "gzip")
			p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields("x", "x")))
		}, "reset 1 PROTOCOL_ERROR"},
		{"data after the trailer", func(p *rawClient) {
			p.sendRequestHeader(1, "/hold")
			p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields("x", "x")))
			p.sendFrame(http2.FrameData, 0, 1, "x")
		}, "reset 1 STREAM_CLOSED"},
	}, func(p *rawClient) { p.sendPreface() })
}

// TestFramesAfterReset checks that frames which a client sends before it learns that the server has reset a stream are
// no error.
func TestFramesAfterReset(t *testing.T) {
	thenRequest := func(send func(*rawClient)) func(*rawClient) {
		return func(p *rawClient) { send(p); p.sendRequest(3, "/") }
	}
	runRawCases(t, []rawCase{
		{"data", thenRequest(func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 1, "x") }), "answer 3 200|reset 1 STREAM_CLOSED"},
		{"a trailer", thenRequest(func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields("x", "x"))) }),
			"answer 3 200|reset 1 STREAM_CLOSED"},
		{"a window", thenRequest(func(p *rawClient) { p.must(p.WriteWindowUpdate(1, 1)) }), "answer 3 200"},
		{"a reset", thenRequest(func(p *rawClient) { p.must(p.WriteRSTStream(1, http2.ErrCodeCancel)) }), "answer 3 200"},
	}, func(p *rawClient) {
		p.sendPreface()
		p.sendRequestHeader(1, "/bytes/5") // its body is not read
		p.expectEvent("answer 1 200")
		p.expectEvent("reset 1 NO_ERROR")
	})
}

// TestResponsesRespectWindows checks that a response is sent as the windows of its stream and of the connection allow.
func TestResponsesRespectWindows(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	const size = 200_000
	p.sendRequest(1, "/bytes/"+strconv.Itoa(size))
	p.expectEvent("answer 1 200")
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(1, 10))
	p.readBody(1, 10)
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(1, size)) // now the connection is the limit
	p.readBody(1, h2wire.DefaultWindow)
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(0, 100))
	p.readBody(1, h2wire.DefaultWindow+100)
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(0, size))
	if !bytes.Equal(p.readBody(1, size), pattern(size)) {
		t.Error("the answer is another")
	}
	p.waitStreamEnd(1)
}

// waitStreamEnd waits until the stream of a response whose whole body was read has ended.
func (p *rawClient) waitStreamEnd(id uint32) {
	p.Helper()
	p.waitUntil("the stream has ended", func() bool { return p.withConn(func(c *conn) bool { return c.streams[id] == nil }) })
	p.expectAlive()
}

// withConn calls check with the only connection of the server, under its lock, and reports what check returns.
func (p *rawClient) withConn(check func(*conn) bool) bool {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	for c := range p.server.conns {
		c.mu.Lock()
		defer c.mu.Unlock()
		return check(c)
	}
	return false
}

// TestNegativeWindows checks that a client may reduce a window below zero, after which nothing is sent until it is above zero.
func TestNegativeWindows(t *testing.T) {
	t.Parallel()
	initial := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n} }
	p := dialWithPreface(t, rawConfig(), basicHandler, initial(100))
	p.sendRequest(1, "/bytes/1000")
	p.expectEvent("answer 1 200")
	p.readBody(1, 100)
	p.must(p.WriteSettings(initial(50))) // -50
	p.must(p.WriteWindowUpdate(1, 50))   // 0
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(1, 10))
	p.readBody(1, 110)
	p.expectNoMoreData(1)
	p.must(p.WriteSettings(initial(150)))
	p.readBody(1, 210)
	p.must(p.WriteSettings(initial(0))) // -150
	p.must(p.WriteSettings(initial(1000)))
	if !bytes.Equal(p.readBody(1, 1000), pattern(1000)) {
		t.Error("the answer is another")
	}
	p.waitStreamEnd(1)
}

// TestEndWithoutWindow checks that the end of a response needs no window, so it is sent even when that is below zero.
func TestEndWithoutWindow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := dialWithPreface(t, rawConfig(), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(pattern(100))
		_ = http.NewResponseController(w).Flush()
		<-release
	})
	p.sendRequest(1, "/")
	p.expectEvent("answer 1 200")
	p.readBody(1, 100)
	p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	p.expectAlive() // so the settings have been read
	close(release)
	for {
		f, err := p.nextFrame()
		p.must(err)
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			t.Fatalf("got a reset: %v", f.ErrCode)
		case *http2.DataFrame:
			if !f.StreamEnded() || len(f.Data()) > 0 {
				t.Fatalf("got %v", f)
			}
			return
		}
	}
}

// TestFrameSizes checks that no frame of a response is larger than the client allows, for the header and for the body.
func TestFrameSizes(t *testing.T) {
	t.Parallel()
	const size, fields = 300_000, 9
	for _, maxFrame := range []int{h2wire.SmallestFrame, 20_000, 1 << 20} {
		t.Run(strconv.Itoa(maxFrame), func(t *testing.T) {
			t.Parallel()
			p := dialWithPreface(t, rawConfig(), func(w http.ResponseWriter, r *http.Request) {
				for i := range fields {
					w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 10_000))
				}
				basicHandler(w, r)
			}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: uint32(maxFrame)}, http2.Setting{ID: http2.SettingInitialWindowSize,
				Val: size})
			p.SetMaxReadFrameSize(uint32(maxFrame)) // reading a larger frame is an error
			p.ReadMetaHeaders = nil
			p.must(p.WriteWindowUpdate(0, size))
			p.sendRequest(1, "/bytes/"+strconv.Itoa(size))
			var block []byte
			continued := 0
			for whole := false; !whole; {
				f, err := p.nextFrame()
				p.must(err)
				switch f := f.(type) {
				case *http2.HeadersFrame:
					block, whole = append(block, f.HeaderBlockFragment()...), f.HeadersEnded()
				case *http2.ContinuationFrame:
					block, whole = append(block, f.HeaderBlockFragment()...), f.HeadersEnded()
					continued++
				}
			}
			got, err := hpack.NewDecoder(h2wire.DefaultTableSize, nil).DecodeFull(block)
			if err != nil || len(got) < fields {
				t.Errorf("got %d fields, %v", len(got), err)
			}
			if want := (len(block)+maxFrame-1)/maxFrame - 1; continued < want {
				t.Errorf("a block of %d bytes came with %d continuations, want %d", len(block), continued, want)
			}
			if !bytes.Equal(p.readBody(1, size), pattern(size)) {
				t.Error("the answer is another")
			}
		})
	}
}

// TestClientWithoutHPACKTable checks that a client that allows no dynamic HPACK table first gets a table size update, and only
// fields that can be decoded without such a table.
func TestClientWithoutHPACKTable(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	p.ReadMetaHeaders = nil
	for id := uint32(1); id < 7; id += 2 {
		p.sendRequest(id, "/")
		for block := []byte(nil); block == nil; {
			f, err := p.nextFrame()
			p.must(err)
			h, ok := f.(*http2.HeadersFrame)
			if !ok {
				continue
			}
			block = h.HeaderBlockFragment()
			if id == 1 && block[0] != 0x20 {
				t.Errorf("the first block begins with %#x, not with the size of the table", block[0])
			}
			if got, err := hpack.NewDecoder(0, nil).DecodeFull(block); err != nil || len(got) < 3 {
				t.Errorf("got %v, %v", got, err)
			}
		}
	}
}
