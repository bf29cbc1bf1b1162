package ingress

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"proa.dev/hop"
	"proa.dev/network/proxysync"
)

// TestProgrammingIsRecorded checks that an Ingress has a record when the proxy serves it, which is open while the port of the proxy
// cannot be opened, and that one of another class has none.
func TestProgrammingIsRecorded(t *testing.T) {
	b := newFixture(t)
	records := hop.NewRecorder(100)
	b.server.records = proxysync.NewProgramRecorder(records.Update, "here")
	var isTaken, isTried atomic.Bool
	isTaken.Store(true)
	b.server.http.listen = func(network, address string) (net.Listener, error) {
		if isTried.Store(true); isTaken.Load() {
			return nil, errors.New("address already in use")
		}
		return b.listen(network, address)
	}
	b.ingresses.put(ingressOf("present", "p.example.com", "web", ""))
	b.start()
	b.until("the server runs", isTried.Load)
	b.ingresses.put(ingressOf("web", "a.example.com", "web", ""))
	other := ingressOf("other", "b.example.com", "web", "")
	other.Spec.IngressClassName = new("other")
	b.ingresses.put(other)
	of := func(name string) []hop.Record {
		return records.Select(func(r *hop.Record) bool { return r.Name == name })
	}
	b.until("the record is open", func() bool {
		got := of("web")
		return len(got) == 1 && got[0].Open && got[0].Error == "port 80 of the node cannot be opened"
	})
	isTaken.Store(false)
	b.until("the record has ended", func() bool {
		got := of("web")
		return len(got) == 1 && !got[0].Open && got[0].Error == "" && got[0].User == "system:node:here"
	})
	b.until("the status says where", func() bool { return b.status("web") == "192.0.2.1 80" })
	if got := append(of("other"), of("present")...); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}
