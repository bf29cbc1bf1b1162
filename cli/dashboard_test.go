package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/dashboardproxy"
)

// fixedTransport is a transport that always answers with the same status code.
type fixedTransport int

// RoundTrip returns the response.
func (a fixedTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(a), Body: http.NoBody}, nil
}

// TestCredentialsAreReloaded checks that a dashboard gets a new token of a credential plugin when the old one is rejected, but not
// with every rejected request.
func TestCredentialsAreReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		opened := 0
		next := http.RoundTripper(fixedTransport(http.StatusUnauthorized))
		open := func(context.Context) (http.RoundTripper, error) {
			opened++
			return next, nil
		}
		c := &reloadingCluster{ctx: t.Context(), transport: fixedTransport(http.StatusUnauthorized), open: open}
		send := func(body io.Reader) int {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://cluster/", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		for range 3 {
			if code := send(nil); code != http.StatusUnauthorized || opened != 1 {
				t.Fatalf("%d, and the kubeconfig was read %d times", code, opened)
			}
		}
		next = fixedTransport(http.StatusOK)
		time.Sleep(minReload)
		// A body can be sent only once: the client has to send the request again.
		if code := send(strings.NewReader("body")); code != http.StatusUnauthorized || opened != 2 {
			t.Errorf("a request with a body got %d, and the kubeconfig was read %d times", code, opened)
		}
		if code := send(nil); code != http.StatusOK || opened != 2 {
			t.Errorf("with new credentials a request got %d, and the kubeconfig was read %d times", code, opened)
		}
	})
}

// expiredTransport is a transport that rejects requests to all paths but one, and records that its idle connections were closed.
type expiredTransport struct{ closed bool }

// RoundTrip returns the response.
func (e *expiredTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == "/version" {
		return fixedTransport(http.StatusOK).RoundTrip(req)
	}
	return fixedTransport(http.StatusUnauthorized).RoundTrip(req)
}

// CloseIdleConnections records the call.
func (e *expiredTransport) CloseIdleConnections() { e.closed = true }

// TestReloadDoesNotBlockRequests checks that requests are sent while a credential plugin runs, that rejected requests wait for it
// for a bounded time, that only one plugin runs, and that the former connections are closed.
func TestReloadDoesNotBlockRequests(t *testing.T) {
	for _, x := range []struct {
		pluginTime, wantWait time.Duration
		want                 int
	}{
		{5 * time.Second, 5 * time.Second, http.StatusOK},
		{time.Hour, maxWait, http.StatusUnauthorized},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Hour)
			opened, old := 0, &expiredTransport{}
			c := &reloadingCluster{ctx: t.Context(), transport: old, open: func(ctx context.Context) (http.RoundTripper, error) {
				opened++
				select {
				case <-time.After(x.pluginTime):
					return fixedTransport(http.StatusOK), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}}
			begin := time.Now()
			send := func(path string) int {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cluster"+path, http.NoBody)
				if err != nil {
					t.Error(err)
					return 0
				}
				resp, err := c.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return 0
				}
				_ = resp.Body.Close()
				return resp.StatusCode
			}
			codes := make(chan int, 3)
			for range cap(codes) {
				go func() { codes <- send("/api") }()
			}
			synctest.Wait()
			if code := send("/version"); code != http.StatusOK || time.Since(begin) > 0 {
				t.Errorf("a request beside the credential plugin got %d after %v", code, time.Since(begin))
			}
			for range cap(codes) {
				if code := <-codes; code != x.want || time.Since(begin) != x.wantWait {
					t.Errorf("a refused request got %d after %v", code, time.Since(begin))
				}
			}
			if opened != 1 || old.closed != (x.want == http.StatusOK) {
				t.Errorf("the plugin ran %d times, the former connections are closed: %v", opened, old.closed)
			}
			time.Sleep(maxReload)
			synctest.Wait()
			if c.reloading != nil {
				t.Error("the time of the credential plugin is not bounded")
			}
		})
	}
}

// TestDashboardKeepsItsCluster checks that an open dashboard reloads credentials only for its own cluster, also if the current
// context of the kubeconfig or the cluster of its own context has changed.
func TestDashboardKeepsItsCluster(t *testing.T) {
	serve := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Authorization") != "Bearer new" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, name)
		}))
		t.Cleanup(s.Close)
		return s
	}
	dev, prod := serve("dev"), serve("prod")
	file := filepath.Join(t.TempDir(), "config")
	write := func(current, cluster, token string) {
		text := fmt.Sprintf(`current-context: %s
contexts: [{name: dev, context: {cluster: %s, user: u}}, {name: prod, context: {cluster: prod, user: v}}]
clusters: [{name: dev, cluster: {server: %q}}, {name: prod, cluster: {server: %q}}]
users: [{name: u, user: {token: %s}}, {name: v, user: {token: new}}]`, current, cluster, dev.URL, prod.URL, token)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("dev", "dev", "old")
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	flags := newReaderFlags(fs)
	if err := fs.Parse([]string{"--kubeconfig", file}); err != nil {
		t.Fatal(err)
	}
	r, _, err := flags.open(t.Context(), &command.Env{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := newReloadingCluster(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	send := func() string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cluster/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return fmt.Sprint(resp.StatusCode, " ", string(body))
	}
	for _, x := range []struct{ current, cluster, token, want string }{
		{"prod", "dev", "old", "401 dev"},
		{"dev", "prod", "new", "401 dev"},
		{"prod", "dev", "new", "200 dev"},
	} {
		write(x.current, x.cluster, x.token)
		c.loaded = time.Time{}
		if got := send(); got != x.want {
			t.Errorf("with the current context %s and the cluster %s it got %s, not %s", x.current, x.cluster, got, x.want)
		}
	}
}

// TestDashboardEnds checks that the command ends with its context, and that it prints the address and the code.
func TestDashboardEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out := &stoppingBuffer{text: "Ctrl-C ends it.", stop: stop}
	config := dashboardproxy.Config{Cluster: fixedTransport(http.StatusOK), Server: "https://cluster\x1b[31m"}
	err := serveDashboard(ctx, &command.Env{Out: out, Err: out}, 0, false, config)
	if err != nil {
		t.Errorf("it ended with %v", err)
	}
	printed := out.String()
	if !strings.Contains(printed, "http://127.0.0.1:") || strings.Contains(printed, "\x1b") {
		t.Errorf("it printed %q", printed)
	}
}

// stoppingBuffer is an output that calls stop once a text was written.
type stoppingBuffer struct {
	bytes.Buffer
	text string
	stop func()
}

// Write appends to the buffer.
func (s *stoppingBuffer) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.text) {
		s.stop()
	}
	return n, err
}

func TestDashboardArguments(t *testing.T) {
	for _, args := range [][]string{{"dashboard", "pods"}, {"dashboard", "--port", "70000"}, {"dashboard", "--kubeconfig", "/none"}} {
		var b bytes.Buffer
		err := runCommand(t.Context(), &command.Env{Out: &b, Err: &b}, args)
		if err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("proa %s: %v", strings.Join(args, " "), err)
		}
	}
}
