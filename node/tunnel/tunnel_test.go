package tunnel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/kinds/lib/streamoptions"
)

func newTunnels() *Tunnels {
	own := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("2001:db8::7")}
	pods := netip.MustParsePrefix("10.244.3.0/24")
	return New(Config{
		NodeIPs: func() []netip.Addr { return own }, IsPodIP: pods.Contains, Log: slog.New(slog.DiscardHandler),
	})
}

// TestAllows checks that a server may connect to the node and its Pods, and to nothing else that the node can reach.
func TestAllows(t *testing.T) {
	n := newTunnels()
	for to, want := range map[string]bool{
		"127.0.0.1:10250":     true, // configured as an address of the node
		"127.0.0.1:80":        true,
		"127.0.0.2:10250":     false,
		"[::1]:10250":         false,
		"[2001:db8::7]:10250": true,
		"[2001:db8::8]:10250": false,
		"10.244.3.9:8080":     true,
		"10.244.3.9:0":        false,
		"10.244.4.9:8080":     false, // a Pod of another node
		"10.96.0.1:443":       false, // the API
		"169.254.169.254:80":  false, // the metadata service of clouds
		"0.0.0.0:10250":       false,
		"[fe80::1%eth0]:80":   false,
	} {
		if got := n.allows(netip.MustParseAddrPort(to)); got != want {
			t.Errorf("%s: %v, want %v", to, got, want)
		}
	}
	all := New(Config{NodeIPs: func() []netip.Addr { return nil }, IsPodIP: func(netip.Addr) bool { return true }})
	for _, to := range []string{"127.0.0.1:80", "[::1]:80", "169.254.169.254:80", "0.0.0.0:80", "224.0.0.1:80"} {
		if all.allows(netip.MustParseAddrPort(to)) {
			t.Errorf("%s is allowed as an address of a Pod", to)
		}
	}
}

// TestRefusedConnections checks the errors of requests that are not allowed.
func TestRefusedConnections(t *testing.T) {
	near, far := net.Pipe()
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	n := newTunnels()
	wg.Go(func() { _ = n.serve(ctx, far) })
	defer wg.Wait()
	defer stop()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	by := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
	conn, err := by.NewClientConn(ctx, "http", "node:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ method, to, want string }{
		{http.MethodGet, "127.0.0.1:1", "405 a tunnel leads to addresses, and knows only CONNECT"},
		{http.MethodConnect, "localhost:10250", `400 "localhost:10250" is not an address and a port`},
		{http.MethodConnect, strings.Repeat("a", 300) + ":1", "is not an address and a port"},
		{http.MethodConnect, "127.0.0.3:80", "403 127.0.0.3 is neither the node's nor that of one of its Pods"},
		{http.MethodConnect, "[::ffff:127.0.0.3]:80", "403 127.0.0.3 is neither the node's nor that of one of its Pods"},
		{http.MethodConnect, "127.0.0.1:1", "502 dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		req, err := http.NewRequestWithContext(ctx, test.method, "http://"+test.to, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := conn.RoundTrip(req)
		if err != nil {
			t.Fatal(test, err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(text))); !strings.Contains(got, test.want) {
			t.Errorf("%s %s: %s, want %s", test.method, test.to, got, test.want)
		}
	}
}

// TestIdleConnectionIsClosed checks that a connection without traffic is closed.
func TestIdleConnectionIsClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	in, w := io.Pipe()
	defer func() { _ = w.Close() }()
	copyBoth(t.Context(), io.Discard, in, conn.(*net.TCPConn), time.Millisecond)
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("the connection is open")
	}
}

// TestNextBackoff checks that the back-off is short after a tunnel that was open, and grows while none can be opened.
func TestNextBackoff(t *testing.T) {
	var got []string
	pause := time.Duration(0)
	for range 11 {
		pause = next(pause, 0, false)
		got = append(got, pause.String())
	}
	if want := "100ms 200ms 400ms 800ms 1.6s 3.2s 6.4s 12.8s 25.6s 30s 30s"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, test := range []struct {
		pause, lived time.Duration
		has          bool
		want         time.Duration
	}{
		{maxBackoff, steady, false, firstBackoff},
		{maxBackoff, steady - 1, false, maxBackoff},
		{firstBackoff, time.Millisecond, false, 2 * firstBackoff}, // a tunnel that ends at once does not reset the back-off
		{firstBackoff, 0, true, duplicatePause},
		{duplicatePause, 0, false, firstBackoff},
	} {
		if got := next(test.pause, test.lived, test.has); got != test.want {
			t.Errorf("after %s, open for %s: %s, want %s", test.pause, test.lived, got, test.want)
		}
	}
	for range 1000 {
		if got := jitter(firstBackoff); got < firstBackoff/2 || got >= firstBackoff*3/2 {
			t.Fatalf("%s is too far from %s", got, firstBackoff)
		}
	}
}

// TestTunnelsFollowServers checks that there is one tunnel to each listed server, and none to removed ones.
func TestTunnelsFollowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		lists := make(chan []string)
		var mu sync.Mutex
		tried := map[string]int{}
		n := newTunnels()
		n.dial = func(_ context.Context, server string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			tried[server]++
			return nil, io.EOF
		}
		n.Servers = func(yield func([]string) bool) {
			for {
				select {
				case <-ctx.Done():
					return
				case list := <-lists:
					if !yield(list) {
						return
					}
				}
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { _ = n.Run(ctx) })
		counted := func() string {
			mu.Lock()
			defer mu.Unlock()
			out := fmt.Sprint(tried)
			clear(tried)
			return out
		}
		lists <- []string{"a:1"}
		synctest.Wait()
		if got := counted(); got != "map[a:1:1]" {
			t.Errorf("at first %s", got)
		}
		lists <- []string{"a:1", "b:1"}
		synctest.Wait()
		if got := counted(); got != "map[b:1:1]" {
			t.Errorf("with a second %s", got)
		}
		lists <- []string{"b:1"}
		synctest.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		if tried["a:1"] != 0 || tried["b:1"] < 80 || tried["b:1"] > 260 {
			t.Errorf("in an hour without the first %v", tried)
		}
		mu.Unlock()
		stop()
		wg.Wait()
	})
}

// TestResponsesToOpen checks that other responses become errors with the text of the server.
func TestResponsesToOpen(t *testing.T) {
	n := newTunnels()
	for response, want := range map[string]string{
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: " + streamoptions.TunnelProtocol + "\r\n\r\n": "<nil>",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\n\r\n":                                `the server speaks "other", not proa-tunnel/1`,
		"HTTP/1.1 409 Conflict\r\n\r\n":                                                             errDuplicate.Error(),
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno.\n":                                  "the server says 403 Forbidden: no.",
		"SSH-2.0\r\n": "malformed HTTP",
	} {
		var request strings.Builder
		err := n.ask(&request, bufio.NewReader(strings.NewReader(response)), "192.0.2.1:6443")
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", response, got, want)
		}
		if !strings.HasPrefix(request.String(), "POST /proa/tunnel HTTP/1.1\r\nHost: 192.0.2.1:6443\r\n") ||
			!strings.Contains(request.String(), streamoptions.TunnelAt+": 127.0.0.1,2001:db8::7\r\n") {
			t.Errorf("the request is %q", request.String())
		}
	}
}
