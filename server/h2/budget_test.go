package h2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"proa.dev/server/h2/h2wire"
)

// TestChooseEvictedConnections checks which connections are closed when they hold too much: unauthenticated ones that hold
// unusually much, then the oldest, never a new one; of authenticated connections those that hold most.
func TestChooseEvictedConnections(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(kib int64, age time.Duration) evictionCandidate {
		return evictionCandidate{bytes: kib << 10, since: begin.Add(-age)}
	}
	for name, c := range map[string]struct {
		all           []evictionCandidate
		excess        int64 // KiB
		authenticated bool
		want          []int
	}{
		"nothing to do":               {[]evictionCandidate{at(32, 0)}, 0, false, nil},
		"the largest unauthenticated": {[]evictionCandidate{at(32, time.Hour), at(2000, 0), at(40, 0)}, 1, false, []int{1}},
		"the oldest of equals":        {[]evictionCandidate{at(32, time.Second), at(32, time.Minute), at(32, 0)}, 40, false, []int{1, 0}},
		"a body does not matter":      {[]evictionCandidate{at(100, 0), at(32, time.Second), at(34, time.Minute)}, 60, false, []int{2, 1}},
		"of large ones the oldest":    {[]evictionCandidate{at(1100, 0), at(1200, time.Second), at(32, time.Hour)}, 1, false, []int{1}},
		"as many as are needed":       {[]evictionCandidate{at(1000, 0), at(3000, 0), at(500, 0)}, 3500, false, []int{1, 0}},
		"all, if that is not enough":  {[]evictionCandidate{at(32, 0), at(33, 0)}, 1000, false, []int{0, 1}},
		"the largest of users":        {[]evictionCandidate{at(40, time.Hour), at(45, 0)}, 1, true, []int{1}},
	} {
		before := slices.Clone(c.all)
		got := []int{}
		for _, h := range chooseEvicted(c.all, c.excess<<10, c.authenticated) {
			got = append(got, slices.Index(before, h))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: chosen are %v, want %v", name, got, c.want)
		}
	}
}

// holdHandler is a handler that waits for its client to disconnect. It authenticates requests that ask for it.
func holdHandler(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		w.(interface{ Authenticated() }).Authenticated()
	}
	if r.Header.Get("X-Hold") != "" {
		<-r.Context().Done()
	}
}

// connectAnother connects one more client to the same server.
func (v *bubbleClient) connectAnother() *bubbleClient {
	v.Helper()
	o := newBubbleClient(v.T, v.server, holdHandler)
	if _, err := io.WriteString(o.socket, h2wire.Preface); err != nil {
		v.Fatal(err)
	}
	if err := o.WriteSettings(); err != nil {
		v.Fatal(err)
	}
	return o
}

// sendLargeRequest sends a request with a header of about size bytes, none of which enter the HPACK table.
func (v *bubbleClient) sendLargeRequest(id uint32, size int, more ...string) {
	v.Helper()
	v.block.Reset()
	pairs := append([]string{":method", "GET", ":scheme", "https", ":authority", "proa", ":path", "/", "x-hold", "1"}, more...)
	for i := range size / 10_000 {
		pairs = append(pairs, "x-"+strconv.Itoa(i), strings.Repeat("x", 10_000))
	}
	for i := 0; i < len(pairs); i += 2 {
		_ = v.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1], Sensitive: true})
	}
	b := v.block.Bytes()
	f := http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:min(len(b), h2wire.SmallestFrame)], EndStream: true,
		EndHeaders: len(b) <= h2wire.SmallestFrame}
	if err := v.WriteHeaders(f); err != nil {
		return // the client was disconnected meanwhile
	}
	for b = b[min(len(b), h2wire.SmallestFrame):]; len(b) > 0; b = b[min(len(b), h2wire.SmallestFrame):] {
		if v.WriteContinuation(id, len(b) <= h2wire.SmallestFrame, b[:min(len(b), h2wire.SmallestFrame)]) != nil {
			return
		}
	}
}

// TestHeadersOfAConnectionAreBounded checks that requests with large headers are refused, so that clients may retry,
// when those in flight hold as much as a connection may. Authenticated clients may hold more.
func TestHeadersOfAConnectionAreBounded(t *testing.T) {
	t.Parallel()
	for _, authenticated := range []bool{false, true} {
		t.Run(strconv.FormatBool(authenticated), func(t *testing.T) {
			t.Parallel()
			cfg := bubbleConfig()
			cfg.Streams = 250
			inBubble(t, cfg, holdHandler, func(v *bubbleClient) {
				want := 2 // so many requests fit into the budget for headers
				if authenticated {
					v.request(1, "GET", true, "authorization", "yes")
					v.eventsAfter(0)
					want = 5
				}
				for i := range uint32(50) {
					v.sendLargeRequest(2*i+3, 900_000)
				}
				refused := 0
				for _, e := range v.eventsAfter(time.Second) {
					if strings.HasSuffix(e, "REFUSED_STREAM") {
						refused++
					}
				}
				c := v.conn()
				c.mu.Lock()
				defer c.mu.Unlock()
				if refused != 50-want || len(c.streams) != want || c.headers > c.headerLimit() {
					t.Errorf("%d requests were refused, and %d hold %d bytes of headers", refused, len(c.streams), c.headers)
				}
			})
		})
	}
}

// TestHeaderMemoryIsReleased checks that the memory of ended requests can be used by others.
func TestHeaderMemoryIsReleased(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
		v.sendLargeRequest(1, 900_000)
		v.sendLargeRequest(3, 900_000)
		v.expectEvents(0, "reset 3 REFUSED_STREAM")
		if err := v.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
		v.eventsAfter(0)
		v.sendLargeRequest(5, 900_000)
		v.expectEvents(0, "reset 3 REFUSED_STREAM")
		if c := v.conn(); len(c.streams) != 1 {
			t.Errorf("%d requests are under way", len(c.streams))
		}
	})
}

// TestUnauthenticatedCannotLockOutUsers checks that unauthenticated clients that together exceed their limit are
// disconnected, those first that hold most, while authenticated clients, and new ones, are served.
func TestUnauthenticatedCannotLockOutUsers(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*bubbleClient){
		"headers": func(v *bubbleClient) { v.sendLargeRequest(1, 900_000) },
		"headers that do not end": func(v *bubbleClient) {
			v.block.Reset()
			// the beginning of a field whose value is 1 MB long
			_ = v.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x00, 0x01, 'x', 0x7f, 0x81, 0x84, 0x3d}})
			for range 50 {
				_ = v.WriteContinuation(1, false, make([]byte, h2wire.SmallestFrame))
			}
		},
		"bodies": func(v *bubbleClient) {
			v.request(1, "POST", false, "x-hold", "1")
			for range 3 {
				_ = v.WriteData(1, false, make([]byte, h2wire.SmallestFrame))
			}
		},
		"connections": func(v *bubbleClient) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := bubbleConfig()
			cfg.Unauthenticated = 4 << 20
			inBubble(t, cfg, holdHandler, func(v *bubbleClient) {
				v.request(1, "GET", true, "authorization", "yes", "x-hold", "1")
				synctest.Wait()
				unauthenticated := []*bubbleClient{}
				for i := range 150 {
					s := v.connectAnother()
					unauthenticated = append(unauthenticated, s)
					hold(s)
					time.Sleep(evictedCloseTimeout / 5)
					synctest.Wait()
					if held := v.server.unauthenticated.held.Load(); held > 7<<20 { // one connection is new, and some are being closed
						t.Errorf("unauthenticated clients hold %d bytes", held)
					}
					if i%50 == 0 { // a client that authenticates
						u := v.connectAnother()
						u.request(1, "GET", true, "authorization", "yes")
						if got := u.eventsAfter(0); !slices.Equal(got, []string{"answer 1 200", "end 1"}) {
							t.Errorf("a user who came after %d unauthenticated clients got %q", i, got)
						}
						_ = u.socket.Close()
						<-u.ended
					}
				}
				disconnected := 0
				for _, s := range unauthenticated {
					if slices.Contains(s.eventsAfter(0), "goaway ENHANCE_YOUR_CALM") {
						disconnected++
					}
				}
				if disconnected < 10 {
					t.Errorf("%d unauthenticated clients were disconnected", disconnected)
				}
				v.expectEvents(0)
				v.server.mu.Lock()
				for c := range v.server.conns {
					if c.authenticated.Load() && c.evicted.Load() {
						t.Error("an authenticated client was disconnected because of unauthenticated ones")
					}
				}
				v.server.mu.Unlock()
				for _, s := range unauthenticated {
					_ = s.socket.Close()
					<-s.ended
				}
			})
		})
	}
}

// TestAuthenticatedConnectionsAreBounded checks that authenticated connections are limited, too, and that the one that holds most
// is closed.
func TestAuthenticatedConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	cfg := bubbleConfig()
	cfg.Authenticated = 4 << 20
	inBubble(t, cfg, holdHandler, func(v *bubbleClient) {
		v.request(1, "GET", true, "authorization", "yes", "x-hold", "1")
		largest := v.connectAnother()
		for i := range uint32(4) {
			largest.sendLargeRequest(2*i+1, 900_000, "authorization", "yes")
			synctest.Wait()
		}
		other := v.connectAnother()
		other.sendLargeRequest(1, 900_000, "authorization", "yes")
		if got := largest.eventsAfter(0); !slices.Contains(got, "goaway ENHANCE_YOUR_CALM") {
			t.Errorf("the one that holds most got %q", got)
		}
		if got := other.eventsAfter(0); len(got) != 0 {
			t.Errorf("the other one got %q", got)
		}
		v.expectEvents(0)
		for _, o := range []*bubbleClient{largest, other} {
			_ = o.socket.Close()
			<-o.ended
		}
	})
}

// TestBodiesBeforeAuthentication checks that the window of a connection is restored only for what its handlers have
// read, and that it is small until a request has been authenticated: a client that sends more breaks the protocol.
func TestBodiesBeforeAuthentication(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
		for i := range uint32(4) {
			v.request(2*i+1, "POST", false, "x-hold", "1", "content-length", "60000")
			if err := v.WriteData(2*i+1, false, make([]byte, 16_000)); err != nil {
				t.Fatal(err)
			}
		}
		v.expectEvents(time.Minute)
		if c := v.conn(); c.bodies.room != h2wire.DefaultWindow-64_000 || c.unread != 64_000 {
			t.Errorf("there is room for %d bytes, and %d are kept", c.bodies.room, c.unread)
		}
		if err := v.WriteData(1, false, make([]byte, 2000)); err != nil {
			t.Fatal(err)
		}
		v.expectEvents(2*closeTimeout, "goaway FLOW_CONTROL_ERROR", "over")
	})
}

// TestWindowGrowsWithAuthentication checks that an authenticated client gets the full window at once.
func TestWindowGrowsWithAuthentication(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
		streams := bubbleConfig().Streams
		for id := range uint32(streams) {
			v.request(2*id+1, "POST", false, "authorization", "yes", "x-hold", "1")
			v.eventsAfter(0)
			for range StreamWindow / h2wire.SmallestFrame {
				if err := v.WriteData(2*id+1, false, make([]byte, h2wire.SmallestFrame)); err != nil {
					t.Fatal(err)
				}
			}
		}
		v.expectEvents(0)
		if c := v.conn(); c.unread != streams*StreamWindow || c.bodies.room != bodyWindow {
			t.Errorf("%d bytes are kept, and there is room for %d", c.unread, c.bodies.room)
		}
	})
}

// TestJoiningCookiesTakesLinearMemory checks that joining cookies takes memory in proportion to them.
func TestJoiningCookiesTakesLinearMemory(t *testing.T) { // not parallel, because it measures memory
	const size = 4000
	value := strings.Repeat("c", size)
	join := func() *http.Request {
		h := h2wire.NewHeaderList(2 << 20)
		for _, f := range []string{":method", "GET", ":scheme", "https", ":path", "/"} {
			if f[0] == ':' {
				h.Add(hpack.HeaderField{Name: f, Value: map[string]string{":method": "GET", ":scheme": "https", ":path": "/"}[f]},
					h2wire.NameCache{})
			}
		}
		for range h2wire.MaxCookies {
			h.Add(hpack.HeaderField{Name: "cookie", Value: value}, h2wire.NameCache{})
		}
		r, err := h.Request(context.Background(), "remote", nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := join()
	runtime.ReadMemStats(&after)
	if got, want := len(r.Header.Get("Cookie")), h2wire.MaxCookies*size+2*(h2wire.MaxCookies-1); got != want ||
		len(r.Header["Cookie"]) != 1 {
		t.Errorf("the cookies are %d bytes in %d fields, want %d", got, len(r.Header["Cookie"]), want)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 3*h2wire.MaxCookies*size {
		t.Errorf("%d bytes of cookies took %d bytes to put together", h2wire.MaxCookies*size, took)
	}
}

// TestCookiePiecesAreBounded checks that a client cannot cut its cookies into any number of pieces.
func TestCookiePiecesAreBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
		v.request(1, "GET", true, slices.Repeat([]string{"cookie", "a=b"}, h2wire.MaxCookies)...)
		v.request(3, "GET", true, slices.Repeat([]string{"cookie", "a=b"}, h2wire.MaxCookies+1)...)
		v.request(5, "GET", true)
		if got := v.eventsAfter(0); !slices.Contains(got, "answer 1 200") || !slices.Contains(got, "answer 3 431") ||
			!slices.Contains(got, "answer 5 200") {
			t.Errorf("the client got %q", got)
		}
	})
}

// TestTooLargeHeadersAreDropped checks that a header that is too large is not kept while its request is answered.
func TestTooLargeHeadersAreDropped(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
		v.sendLargeRequest(1, 1_100_000)
		v.eventsAfter(0)
		if c := v.conn(); c.headers > h2wire.RequestCost {
			t.Errorf("%d bytes are kept", c.headers)
		}
	}, zeroWindow())
}

// TestSettingsAreBounded checks that neither a frame of many settings nor many SETTINGS frames are accepted, though the
// client reads everything.
func TestSettingsAreBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
		all := make([]http2.Setting, maxSettings)
		for i := range all {
			all[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}
		}
		if err := v.WriteSettings(all...); err != nil {
			t.Fatal(err)
		}
		v.expectEvents(0)
		_ = v.WriteSettings(append(all, all[0])...)
		v.expectEvents(2*closeTimeout, "goaway ENHANCE_YOUR_CALM", "over")
	})
}

// TestNoOpFrameFlood checks that a client which floods the server with frames that have no effect is disconnected, though it
// reads everything, and that one which sends such frames now and then is not.
func TestNoOpFrameFlood(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(v *bubbleClient, i int) error{
		"settings":                 func(v *bubbleClient, _ int) error { return v.WriteSettings() },
		"acknowledged settings":    func(v *bubbleClient, _ int) error { return v.WriteSettingsAck() },
		"pings":                    func(v *bubbleClient, _ int) error { return v.WritePing(false, [8]byte{}) },
		"pongs":                    func(v *bubbleClient, _ int) error { return v.WritePing(true, [8]byte{}) },
		"priorities":               func(v *bubbleClient, _ int) error { return v.WritePriority(1, http2.PriorityParam{StreamDep: 3}) },
		"farewells":                func(v *bubbleClient, _ int) error { return v.WriteGoAway(0, 0, nil) },
		"unknown frames":           func(v *bubbleClient, _ int) error { return v.WriteRawFrame(0xfe, 0, 0, nil) },
		"empty data":               func(v *bubbleClient, _ int) error { return v.WriteData(1, false, nil) },
		"padding":                  func(v *bubbleClient, _ int) error { return v.WriteDataPadded(1, false, nil, make([]byte, 200)) },
		"resets of ended requests": func(v *bubbleClient, _ int) error { return v.WriteRSTStream(3, http2.ErrCodeCancel) },
		"requests and resets": func(v *bubbleClient, i int) error {
			id := uint32(2*i + 5)
			v.block.Reset()
			_ = v.encoder.WriteField(hpack.HeaderField{Name: ":method", Value: "GET"})
			_ = v.encoder.WriteField(hpack.HeaderField{Name: ":scheme", Value: "https"})
			_ = v.encoder.WriteField(hpack.HeaderField{Name: ":path", Value: "/"})
			if err := v.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: v.block.Bytes(), EndStream: true,
				EndHeaders: true}); err != nil {
				return err
			}
			return v.WriteRSTStream(id, http2.ErrCodeCancel)
		},
		"malformed requests": func(v *bubbleClient, i int) error {
			return v.WriteRawFrame(http2.FrameHeaders, 5, uint32(2*i+5), []byte{0x82})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := func(v *bubbleClient) {
				v.request(1, "POST", false, "x-hold", "1")
				v.request(3, "GET", true)
			}
			inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
				begin(v)
				var err error
				n := 0
				for ; n < 20_000 && err == nil; n++ {
					err = send(v, n)
				}
				if got := v.eventsAfter(2 * closeTimeout); !slices.Contains(got, "goaway ENHANCE_YOUR_CALM") {
					t.Errorf("after %d: %v, %q", n, err, got[max(0, len(got)-5):])
				}
			})
			inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
				begin(v)
				for n := range 20_000 {
					if err := send(v, n); err != nil {
						t.Fatal(n, err)
					}
					time.Sleep(time.Second / 20)
				}
			})
		})
	}
}

// TestWindowsWakeInOrder checks that a larger window of the connection wakes the streams that wait for it, one after
// the other, and no others.
func TestWindowsWakeInOrder(t *testing.T) {
	t.Parallel()
	got := make(chan error, 100)
	inBubble(t, bubbleConfig(), fixedSizeHandler(100_000, got), func(v *bubbleClient) {
		for i := range uint32(5) {
			v.request(2*i+1, "GET", true)
			v.eventsAfter(0) // the first request uses up the window
		}
		order := func() (ids []uint32) {
			c := v.conn()
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, st := range c.out.waiting {
				ids = append(ids, st.id)
			}
			return ids
		}
		for i := range 10 {
			want := []uint32{1, 3, 5, 7, 9}
			want = append(want[i%5:], want[:i%5]...)
			if got := order(); !slices.Equal(got, want) {
				t.Fatalf("after %d times the streams wait in the order %v, want %v", i, got, want)
			}
			if err := v.WriteWindowUpdate(0, 1); err != nil {
				t.Fatal(err)
			}
		}
		v.eventsAfter(0)
		if fmt.Sprint(v.bytes) != fmt.Sprint(map[uint32]int{1: 65537, 3: 2, 5: 2, 7: 2, 9: 2}) {
			t.Errorf("the streams have got %v", v.bytes)
		}
		if err := v.WriteRSTStream(3, http2.ErrCodeCancel); err != nil { // a stream that is reset takes nothing of the window
			t.Fatal(err)
		}
		if err := v.WriteWindowUpdate(0, 1<<20); err != nil {
			t.Fatal(err)
		}
		for i := range uint32(5) {
			v.eventsAfter(0)
			if v.bytes[2*i+1] != 100_000 && i != 1 {
				t.Errorf("the streams have got %v", v.bytes)
			}
		}
	}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
}

// TestCutOffBodies checks that a handler never takes a part of a body for the whole, however the body ends.
func TestCutOffBodies(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*bubbleClient){
		"the client disconnects": func(v *bubbleClient) { _ = v.socket.Close() },
		"reset":                  func(v *bubbleClient) { _ = v.WriteRSTStream(1, http2.ErrCodeCancel) },
		"too short":              func(v *bubbleClient) { _ = v.WriteData(1, true, nil) },
		"fields":                 func(v *bubbleClient) { _ = v.WriteRawFrame(http2.FrameHeaders, 5, 1, nil) },
		"a protocol error":       func(v *bubbleClient) { _ = v.WriteRawFrame(http2.FramePing, 0, 0, nil) },
	} {
		for _, length := range []string{"", "100", "100000"} {
			if length == "" && (name == "too short" || name == "fields") {
				continue // without a Content-Length such a body is complete
			}
			t.Run(name+" "+length, func(t *testing.T) {
				t.Parallel()
				got := make(chan error, 1)
				inBubble(t, bubbleConfig(), func(_ http.ResponseWriter, r *http.Request) {
					_, err := io.ReadAll(r.Body)
					got <- err
				}, func(v *bubbleClient) {
					fields := []string{}
					if length != "" {
						fields = []string{"content-length", length}
					}
					v.request(1, "POST", false, fields...)
					if err := v.WriteData(1, false, []byte("part")); err != nil {
						t.Fatal(err)
					}
					v.eventsAfter(2 * collectTime)
					end(v)
					if v.eventsAfter(2 * closeTimeout); len(got) == 0 {
						t.Fatal("the handler still waits")
					}
					if err := <-got; err == nil || errors.Is(err, io.EOF) {
						t.Errorf("the handler got the error %v", err)
					}
				})
			})
		}
	}
}

// TestTrailersAreBounded checks that trailers count like headers.
func TestTrailersAreBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
		v.block.Reset()
		_ = v.encoder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 15_000), Sensitive: true})
		trailer := slices.Repeat(v.block.Bytes(), 60)
		for id := uint32(1); id < 7; id += 2 {
			v.request(id, "POST", false, "x-hold", "1")
			_ = v.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: trailer[:15_000], EndStream: true})
			for rest := trailer[15_000:]; len(rest) > 0; rest = rest[min(len(rest), 15_000):] {
				_ = v.WriteContinuation(id, len(rest) <= 15_000, rest[:min(len(rest), 15_000)])
			}
		}
		v.expectEvents(0, "reset 3 ENHANCE_YOUR_CALM", "reset 5 ENHANCE_YOUR_CALM")
	})
}

// TestUnauthenticatedHandlersCount checks that a goroutine that serves an unauthenticated client counts in the budget, and
// one of an authenticated client does not.
func TestUnauthenticatedHandlersCount(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
		for id := uint32(1); id < 20; id += 2 {
			v.request(id, "GET", true, "x-hold", "1")
		}
		c := v.conn()
		if n := v.server.unauthenticated.held.Load(); n < 10*handlerCost {
			t.Errorf("ten handlers of an unauthenticated client count %d bytes", n)
		}
		c.mu.Lock()
		c.authenticate()
		c.mu.Unlock()
		if n, m := v.server.unauthenticated.held.Load(), v.server.authenticated.held.Load(); n != 0 || m > 10*handlerCost {
			t.Errorf("ten handlers of a user count %d and %d bytes", n, m)
		}
	})
}

// TestHeadersThatDoNotEndCount checks that the received part of a header counts before the rest arrives.
func TestHeadersThatDoNotEndCount(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), holdHandler, func(v *bubbleClient) {
		_ = v.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		for range 50 {
			_ = v.WriteContinuation(1, false, make([]byte, h2wire.SmallestFrame))
		}
		if v.conn(); v.server.unauthenticated.held.Load() < 50*h2wire.SmallestFrame {
			t.Errorf("%d bytes count", v.server.unauthenticated.held.Load())
		}
	})
}
