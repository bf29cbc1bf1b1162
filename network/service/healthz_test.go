package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/network/nettest"
)

func TestHealthEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newViews(t)
		p := &Proxy{Config: Config{NodeName: "here", Nodes: w.nodes}, metrics: newMetrics()}
		ask := func(path string) (int, string) {
			r := httptest.NewRecorder()
			p.handler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
			return r.Code, r.Body.String()
		}
		check := func(what, path string, wantCode int, want string) {
			t.Helper()
			if code, got := ask(path); code != wantCode || got != want {
				t.Errorf("%s: %s answers %d %s\nwant %d %s", what, path, code, got, wantCode, want)
			}
		}
		const begin = `"2000-01-01T00:00:00Z"`
		check("no Node object yet", "/healthz", 503,
			`{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":`+begin+`,"nodeEligible":false,"healthy":true}`)
		w.apply("kind: Node\nmetadata: {name: here}\n")
		check("before the first rules", "/healthz", 200,
			`{"lastUpdated":`+begin+`,"currentTime":`+begin+`,"nodeEligible":true,"healthy":true}`)
		check("before the first rules", "/livez", 200, `{"lastUpdated":`+begin+`,"currentTime":`+begin+`,"healthy":true}`)
		p.stopWaiting(time.Now(), nil)
		time.Sleep(time.Hour)
		const later = `"2000-01-01T01:00:00Z"`
		check("no changes for an hour", "/livez", 200,
			`{"lastUpdated":`+later+`,"currentTime":`+later+`,"healthy":true,"status":{"IPv4":{"lastUpdated":`+begin+
				`,"healthy":true},"IPv6":{"lastUpdated":`+begin+`,"healthy":true}}}`)
		// Writing a change fails several times.
		p.mu.Lock()
		p.startWaiting()
		p.mu.Unlock()
		for range 3 {
			since := p.take().waitingSince
			time.Sleep(25 * time.Second)
			p.stopWaiting(since, errors.New("no"))
		}
		const stuck = `"2000-01-01T01:01:15Z"`
		check("rules are not written", "/livez", 503,
			`{"lastUpdated":`+begin+`,"currentTime":`+stuck+`,"healthy":false,"status":{"IPv4":{"lastUpdated":`+begin+
				`,"healthy":false},"IPv6":{"lastUpdated":`+begin+`,"healthy":false}}}`)
		p.stopWaiting(p.take().waitingSince, nil)
		if code, _ := ask("/livez"); code != 200 {
			t.Errorf("after it was written: %d", code)
		}
		w.apply("kind: Node\nmetadata: {name: here}\nspec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}\n")
		if code, _ := ask("/healthz"); code != 503 {
			t.Errorf("/healthz of a node that is about to be deleted: %d", code)
		}
		if code, _ := ask("/livez"); code != 200 {
			t.Errorf("/livez of a node that is about to be deleted: %d", code)
		}
	})
}

// TestHealthPortInUse checks that an address in use is tried again.
func TestHealthPortInUse(t *testing.T) {
	nettest.Need(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.stop()
	config := n.proxy.Config
	config.Health, config.Log = l.Addr().String(), slog.New(slog.NewTextHandler(t.Output(), nil))
	n.startWith(config)
	n.eventually("the rules are written nevertheless", func() string { return outcome(n.host.Ask("tcp", "10.96.0.99:80")) }, "no answer")
	n.stop()
	l.Close()
	n.startWith(config)
	n.eventually("the port is free", func() string {
		r, err := http.Get("http://" + config.Health + "/healthz")
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		var s healthStatus
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			return err.Error()
		}
		return r.Status + map[bool]string{true: " healthy"}[s.Healthy && *s.NodeEligible]
	}, "200 OK healthy")
}

// TestProxyMode checks what tools get that ask kube-proxy at its port for metrics.
func TestProxyMode(t *testing.T) {
	for path, want := range map[string]string{"/proxyMode": "200 nftables", "/healthz": "200 ok", "/metrics": "404 404 page not found\n"} {
		w := httptest.NewRecorder()
		statusHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if got := fmt.Sprint(w.Code, " ", w.Body); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
