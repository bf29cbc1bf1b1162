package run_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"proa.dev/proatest"
	"proa.dev/run"
)

// TestConnectionsDoNotLockOutUsers checks that more connections than the whole process may hold, of clients that nobody
// knows and that come from the same address, keep no user out: idle ones over HTTP/1.1, handshakes that do not end, and
// headers that do not end. The users' own connections stay open.
func TestConnectionsDoNotLockOutUsers(t *testing.T) {
	t.Parallel()
	const limit, share = 64, 16 // of the connections that are not authenticated
	for _, which := range []string{"own", "std"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			c := proatest.Start(t, proatest.Memory(), proatest.HTTP2(which), func(c *run.Config) { c.MaxConnections = limit })
			address := strings.TrimPrefix(c.Config.Host, "https://")
			user, err := rest.HTTPClientFor(c.Config)
			if err != nil {
				t.Fatal(err)
			}
			watch := get(t, user, c.Config.Host+"/api/v1/namespaces?watch=true")
			secured := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			for name, attack := range map[string]func(context.Context) (net.Conn, error){
				"handshakes": func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", address) },
				"headers": func(ctx context.Context) (net.Conn, error) {
					socket, err := secured.DialContext(ctx, "tcp", address)
					if err == nil {
						_, err = io.WriteString(socket, "GET /version HTTP/1.1\r\nHost: proa\r\nX-Slow: ")
					}
					return socket, err
				},
				"idle": func(ctx context.Context) (net.Conn, error) {
					socket, err := secured.DialContext(ctx, "tcp", address)
					if err != nil {
						return nil, err
					}
					_, _ = io.WriteString(socket, "GET /version HTTP/1.1\r\nHost: proa\r\n\r\n")
					res, err := http.ReadResponse(bufio.NewReader(socket), nil)
					if err == nil {
						_ = res.Body.Close()
					}
					return socket, err
				},
			} {
				for range limit + share {
					socket, err := attack(t.Context())
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					defer socket.Close()
				}
				for _, h2 := range []bool{false, true} {
					config := rest.CopyConfig(c.Config)
					if !h2 {
						config.NextProtos = []string{"http/1.1"}
					}
					fresh, err := rest.HTTPClientFor(config)
					if err != nil {
						t.Fatal(err)
					}
					_ = get(t, fresh, c.Config.Host+"/api/v1/namespaces/default").Close()
				}
			}
			body, err := io.ReadAll(get(t, user, c.Config.Host+"/metrics"))
			if err != nil {
				t.Fatal(err)
			}
			if n := metric(t, body, `proa_connections{listener="api",state="unauthenticated"}`); n > share {
				t.Errorf("%d unauthenticated connections are open", n)
			}
			if n := metric(t, body, `proa_connections_closed_total{listener="api",state="unauthenticated"}`); n < limit {
				t.Errorf("%d connections were closed", n)
			}
			if n := metric(t, body, `proa_connections{listener="api",state="administrator"}`); n == 0 {
				t.Error("no connection of an administrator is counted")
			}
			if line, err := bufio.NewReader(watch).ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
				t.Errorf("the watch that was open before: %q, %v", line, err)
			}
		})
	}
}

// get requests a URL, and returns the body of its answer.
func get(t *testing.T, client *http.Client, url string) io.ReadCloser {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, res.Status)
	}
	return res.Body
}

// metric returns the value of a metric in the text format.
func metric(t *testing.T, text []byte, name string) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\d+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no metric %s", name)
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n
}
