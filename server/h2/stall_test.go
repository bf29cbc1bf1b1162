package h2

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"proa.dev/server/h2/h2wire"
)

// bubbleConfig has a realistic limit for headers, so that requests of tests are ordinary.
func bubbleConfig() Config {
	cfg := rawConfig()
	cfg.Header, cfg.Idle = 1<<20, time.Hour
	return cfg
}

func zeroWindow() http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0} }

// TestCollectedBodiesHaveADeadline checks that a small body which does not arrive delays its handler only for a moment:
// the handler authenticates the client, and need not wait for the body.
func TestCollectedBodiesHaveADeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		func(v *bubbleClient) {
			for id := uint32(1); id < 20; id += 2 {
				v.request(id, "POST", false, "content-length", "60000")
			}
			if err := v.WriteData(1, false, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			v.expectEvents(collectTime / 2)
			got := v.eventsAfter(collectTime)
			for id := 1; id < 20; id += 2 {
				if !slices.Contains(got, fmt.Sprintf("answer %d 401", id)) {
					t.Errorf("a request whose body does not come has no answer among %q", got)
				}
			}
			c := v.conn()
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.unread != 0 || c.collecting != 0 || len(c.streams) != 0 {
				t.Errorf("%d bytes of bodies are kept, %d of them being collected, for %d requests", c.unread, c.collecting, len(c.streams))
			}
		})
}

// TestHeaderInPiecesHasADeadline checks that a client cannot take its time between the frames of a header, though it
// has other requests.
func TestHeaderInPiecesHasADeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(v *bubbleClient) {
		v.request(1, "GET", true)
		if err := v.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82}}); err != nil {
			t.Fatal(err)
		}
		v.expectEvents(testTimeout / 2)
		v.expectEvents(testTimeout, "over")
	})
}

// fixedSizeHandler is a handler that writes a response with a Content-Length, and reports how that ended.
func fixedSizeHandler(size int, got chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		w.Header().Set("Content-Type", "text/plain")
		_, err := w.Write(make([]byte, size))
		got <- err
	}
}

// TestZeroWindowOccupiesNoHandler checks that a handler with a small response returns, and releases its seat, though the
// client reads nothing of the response. The response is kept for the client for some time, and then the stream is
// reset.
func TestZeroWindowOccupiesNoHandler(t *testing.T) {
	t.Parallel()
	got := make(chan error, 100)
	inBubble(t, bubbleConfig(), fixedSizeHandler(1000, got), func(v *bubbleClient) {
		for id := uint32(1); id < 20; id += 2 {
			v.request(id, "GET", true)
		}
		v.eventsAfter(time.Millisecond)
		if len(got) != 10 {
			t.Errorf("%d of 10 handlers have returned, for a client that takes nothing", len(got))
		}
		if err := v.WriteWindowUpdate(1, 1000); err != nil {
			t.Fatal(err)
		}
		if v.eventsAfter(time.Millisecond); v.bytes[1] != 1000 {
			t.Errorf("the client has got %d of 1000 bytes", v.bytes[1])
		}
		v.eventsAfter(unauthenticatedStallTimeout)
		c := v.conn()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.streams) != 0 || c.parked != 0 || c.running != 0 {
			t.Errorf("after %v, %d answers wait, with %d bytes, and %d handlers", unauthenticatedStallTimeout, len(c.streams), c.parked,
				c.running)
		}
	}, zeroWindow())
}

// TestZeroWindowOfAllRequestsOccupiesNoHandler checks that as many small responses as a connection can request at a time
// occupy no handler: two on each of many connections would be enough to take the seats of others.
func TestZeroWindowOfAllRequestsOccupiesNoHandler(t *testing.T) {
	t.Parallel()
	cfg := bubbleConfig()
	cfg.Streams = 250
	got := make(chan error, cfg.Streams)
	inBubble(t, cfg, fixedSizeHandler(parkedAnswer, got), func(v *bubbleClient) {
		for i := range uint32(cfg.Streams) {
			v.request(2*i+1, "GET", true)
		}
		if v.eventsAfter(time.Millisecond); len(got) != cfg.Streams {
			t.Errorf("%d of %d handlers have returned, for a client that takes nothing", len(got), cfg.Streams)
		}
	}, zeroWindow())
}

// TestParkedResponsesAreBounded checks that only a limited amount of small responses is kept for a client that reads
// none.
func TestParkedResponsesAreBounded(t *testing.T) {
	t.Parallel()
	got := make(chan error, 100)
	inBubble(t, bubbleConfig(), fixedSizeHandler(30<<10, got), func(v *bubbleClient) {
		for id := uint32(1); id < 20; id += 2 {
			v.request(id, "GET", true)
		}
		v.eventsAfter(time.Millisecond)
		c := v.conn()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(got) != 2 || c.parked != 60<<10 {
			t.Errorf("%d handlers have returned, and %d bytes of their answers wait", len(got), c.parked)
		}
	}, zeroWindow())
}

// stalls are ways in which a client keeps a response of 1 MiB from being sent.
var stalls = map[string]struct {
	settings []http2.Setting
	begin    func(*bubbleClient)
}{
	"no window of the stream":     {[]http2.Setting{zeroWindow()}, func(*bubbleClient) {}},
	"no window of the connection": {[]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 30}}, func(*bubbleClient) {}},
	"window of streams, but not of the connection": {[]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 30}},
		func(v *bubbleClient) {
			go func() { // each of these wakes the stream, and lets it send nothing
				for {
					select {
					case <-v.ended:
						return
					case <-time.After(time.Second):
						_, _ = v.socket.Write(h2wire.AppendWindowUpdate(nil, 1, 1)) // the framer is not safe for concurrent use
					}
				}
			}()
		}},
	"nothing is read": {[]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 30}}, func(v *bubbleClient) {
		if err := v.WriteWindowUpdate(0, 1<<30); err != nil {
			v.Fatal(err)
		}
		v.conn()
		v.pauseReading()
	}},
}

// TestStalledResponsesTimeOut checks that a handler does not wait forever for a client that does not read its response, in
// whatever way. Authenticated clients may take longer.
func TestStalledResponsesTimeOut(t *testing.T) {
	t.Parallel()
	for name, way := range stalls {
		for _, authenticated := range []bool{false, true} {
			limit := unauthenticatedStallTimeout
			if authenticated {
				limit = stallTimeout
			}
			t.Run(name+" "+strconv.FormatBool(authenticated), func(t *testing.T) {
				t.Parallel()
				got := make(chan error, 1)
				inBubble(t, bubbleConfig(), fixedSizeHandler(1<<20, got), func(v *bubbleClient) {
					if c := v.conn(); authenticated {
						c.mu.Lock()
						c.authenticate()
						c.mu.Unlock()
					}
					way.begin(v)
					v.request(1, "GET", true)
					v.eventsAfter(limit - time.Second)
					if len(got) != 0 {
						t.Fatalf("the handler has not waited: %v", <-got)
					}
					v.eventsAfter(10 * time.Second)
					if len(got) != 1 {
						t.Fatal("the handler still waits")
					}
					if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the handler got the error %v", err)
					}
				}, way.settings...)
			})
		}
	}
}

// TestLongRunningResponsesMayPause checks that an authenticated client of a long-running stream, such as a log that somebody
// reads page by page, may pause for as long as it likes. An unauthenticated client may not.
func TestLongRunningResponsesMayPause(t *testing.T) {
	t.Parallel()
	for _, authenticated := range []bool{true, false} {
		got := make(chan error, 1)
		inBubble(t, bubbleConfig(), func(w http.ResponseWriter, r *http.Request) {
			if authenticated {
				w.(interface{ Authenticated() }).Authenticated()
			}
			w.(interface{ Lasting() }).Lasting()
			fixedSizeHandler(1<<20, got)(w, r)
		}, func(v *bubbleClient) {
			v.request(1, "GET", true)
			v.eventsAfter(10 * stallTimeout)
			if ended := len(got) == 1; ended == authenticated {
				t.Fatalf("known %v: ended %v", authenticated, ended)
			}
			if !authenticated {
				return
			}
			for _, id := range []uint32{0, 1} {
				if err := v.WriteWindowUpdate(id, 2<<20); err != nil {
					t.Fatal(err)
				}
			}
			v.eventsAfter(time.Second)
			if err := <-got; err != nil {
				t.Errorf("the handler got the error %v", err)
			}
		})
	}
}

// TestWriteDeadlines checks that the write deadline ends a response in whatever way the client does not read it: the
// stream is reset, and the handler's write fails with os.ErrDeadlineExceeded. A deadline can be moved, and one that has
// passed takes effect at once.
func TestWriteDeadlines(t *testing.T) {
	t.Parallel()
	for name, way := range stalls {
		for _, authenticated := range []bool{false, true} {
			t.Run(name+" "+strconv.FormatBool(authenticated), func(t *testing.T) {
				t.Parallel()
				got := make(chan error, 1)
				inBubble(t, bubbleConfig(), func(w http.ResponseWriter, r *http.Request) {
					if authenticated {
						w.(interface{ Authenticated() }).Authenticated()
					}
					for _, d := range []time.Duration{time.Second, time.Minute, 4 * time.Second} {
						if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d)); err != nil {
							t.Error(err)
						}
					}
					fixedSizeHandler(1<<20, got)(w, r)
				}, func(v *bubbleClient) {
					way.begin(v)
					v.request(1, "GET", true)
					v.eventsAfter(3 * time.Second)
					if len(got) != 0 {
						t.Fatalf("the handler has not waited: %v", <-got)
					}
					v.eventsAfter(2*time.Second + handOverTime) // the latter is for a handler that is writing to the socket
					if len(got) != 1 {
						t.Fatal("the handler still waits")
					}
					if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the handler got the error %v", err)
					}
				}, way.settings...)
			})
		}
	}
	t.Run("passed", func(t *testing.T) {
		t.Parallel()
		inBubble(t, bubbleConfig(), func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Second))
			if _, err := w.Write(make([]byte, 2*maxBuffered)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the handler got the error %v", err)
			}
		}, func(v *bubbleClient) {
			v.request(1, "GET", true)
			v.expectEvents(0, "reset 1 INTERNAL_ERROR")
		})
	})
	t.Run("taken back", func(t *testing.T) {
		t.Parallel()
		inBubble(t, bubbleConfig(), func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
			time.Sleep(time.Minute)
		}, func(v *bubbleClient) {
			v.request(1, "GET", true)
			v.expectEvents(2*time.Minute, "answer 1 200", "end 1")
		})
	})
}

// TestReadDeadlines checks that what arrived before the deadline can be read, and that the missing rest of a body is an
// error.
func TestReadDeadlines(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
		time.Sleep(2 * time.Second)
		if p, err := io.ReadAll(r.Body); string(p) != "some" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the handler has read %q, %v", p, err)
		}
	}, func(v *bubbleClient) {
		v.request(1, "POST", false)
		if err := v.WriteData(1, false, []byte("some")); err != nil {
			t.Fatal(err)
		}
		v.expectEvents(3*time.Second, "answer 1 200", "end 1", "reset 1 NO_ERROR")
	})
}

// TestSlowReaderKeepsItsResponse checks that a client which reads a little from time to time keeps its response.
func TestSlowReaderKeepsItsResponse(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	inBubble(t, bubbleConfig(), fixedSizeHandler(1<<20, got), func(v *bubbleClient) {
		v.request(1, "GET", true)
		for range 20 {
			v.eventsAfter(unauthenticatedStallTimeout - time.Second)
			if err := v.WriteWindowUpdate(1, 1); err != nil {
				t.Fatal(err)
			}
		}
		if synctest.Wait(); len(got) != 0 || v.bytes[1] != 20 {
			t.Errorf("the handler got the error %v after %d bytes", len(got), v.bytes[1])
		}
		_ = v.WriteRSTStream(1, http2.ErrCodeCancel)
	}, zeroWindow())
}

// TestClientsThatDoNotReadOccupyNoHandler checks that handlers of unauthenticated clients return, and release their seats, though
// the client reads nothing of its connection: only a goroutine of the connection waits for the socket.
func TestClientsThatDoNotReadOccupyNoHandler(t *testing.T) {
	t.Parallel()
	got := make(chan error, 100)
	inBubble(t, bubbleConfig(), fixedSizeHandler(1000, got), func(v *bubbleClient) {
		v.conn()
		v.pauseReading()
		for id := uint32(1); id < 20; id += 2 {
			v.request(id, "GET", true)
		}
		if synctest.Wait(); len(got) != 10 {
			t.Errorf("%d of 10 handlers have returned, for a client that reads nothing", len(got))
		}
		if v.eventsAfter(2 * unauthenticatedWriteTimeout); len(v.server.conns) != 0 {
			t.Error("the connection is still there")
		}
	})
}

// TestCollectedBodiesShareTheWindow checks that bodies which are being collected do not wait for each other's window:
// when they hold half of it, their handlers start.
func TestCollectedBodiesShareTheWindow(t *testing.T) {
	t.Parallel()
	inBubble(t, bubbleConfig(), basicHandler, func(v *bubbleClient) {
		for id := uint32(1); id < 20; id += 2 {
			v.request(id, "POST", false, "content-length", "10000")
		}
		for range 5 {
			for id := uint32(1); id < 20; id += 2 {
				if err := v.WriteData(id, false, make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait() // and no time passes
		c := v.conn()
		c.mu.Lock()
		if c.unread != 0 || c.collecting != 0 {
			t.Errorf("of 50000 bytes %d are not read, and %d are being collected", c.unread, c.collecting)
		}
		c.mu.Unlock()
		for id := uint32(1); id < 20; id += 2 {
			if err := v.WriteData(id, true, make([]byte, 5000)); err != nil {
				t.Fatal(err)
			}
		}
		if got := v.eventsAfter(0); len(got) != 20 {
			t.Errorf("ten requests got %q", got)
		}
	})
}
