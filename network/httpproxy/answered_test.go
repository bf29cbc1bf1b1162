package httpproxy

import (
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// TestAnswered checks that the answers of an endpoint are told until somebody wanted to know of one, and never its failures.
func TestAnswered(t *testing.T) {
	f := newTestProxy(t)
	var mu sync.Mutex // guards told and wanted
	var told []netip.AddrPort
	wanted := false
	f.proxy.Answered = func(endpoint netip.AddrPort, sent time.Time) bool {
		mu.Lock()
		defer mu.Unlock()
		if sent.IsZero() || time.Since(sent) < 0 {
			t.Errorf("sent at %v", sent)
		}
		told = append(told, endpoint)
		return wanted
	}
	client := newClient(t)
	ask := func(isWanted bool) {
		t.Helper()
		mu.Lock()
		wanted = isWanted
		mu.Unlock()
		get(t, client, "http://"+f.http+"/")
		mu.Lock()
		defer mu.Unlock()
	}
	f.routeAllTo(HTTP, Filters{}, "http://127.0.0.1:1") // nobody listens there
	ask(false)
	if len(told) != 0 {
		t.Fatalf("told of %v, which does not answer", told)
	}
	backend := startBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	f.routeAllTo(HTTP, Filters{}, backend.URL)
	ask(false)
	ask(false)
	ask(true)
	ask(true)
	if want := addresses(backend.URL)[0]; len(told) != 3 || told[0] != want || told[2] != want {
		t.Errorf("told %v, want three times %v", told, want)
	}
	if e := (*f.pool(Ref{Namespace: "ns", Service: "web", Number: 80, Protocol: HTTP}).live.Load())[0]; e.notifyUntil.Load() != 0 {
		t.Error("it would be told again")
	} else {
		e.notifyUntil.Store(time.Now().Add(-time.Second).UnixNano()) // the endpoint is known for longer
	}
	ask(false)
	if len(told) != 3 {
		t.Errorf("told of an endpoint that is known for long")
	}
}
