package h2

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// TestIdleWorkerIsReused checks that a goroutine which has run a handler waits for the next request, one of them on a connection,
// and ends with it. One that panicked may wait, too.
func TestIdleWorkerIsReused(t *testing.T) { // not parallel, because it counts goroutines
	workers := func() int {
		all := make([]byte, 1<<20)
		return strings.Count(string(all[:runtime.Stack(all, true)]), "h2.(*conn).runHandlers(")
	}
	open := make(chan struct{})
	p := dialWithPreface(t, rawConfig(), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("on purpose")
		}
		waitHandler(open)(w, r)
	})
	p.waitUntil("no handler goroutine runs", func() bool { return workers() == 0 })
	for id := uint32(1); id <= 5; id += 2 {
		p.sendRequest(id, "/")
	}
	p.waitUntil("three work", func() bool { return workers() == 3 && p.running.Load() == 3 })
	close(open)
	for range 3 {
		p.nextEvent()
	}
	for id := uint32(7); id < 27; id += 2 {
		p.waitUntil("one waits", func() bool { return workers() == 1 && p.running.Load() == 0 })
		if id == 9 {
			p.sendRequest(id, "/panic")
			p.expectEvent("reset 9 INTERNAL_ERROR")
			continue
		}
		p.sendRequest(id, "/")
		p.expectEvent(fmt.Sprintf("answer %d 200", id))
	}
	p.must(p.socket.Close())
	p.waitUntil("the idle goroutine has ended", func() bool { return workers() == 0 })
}
