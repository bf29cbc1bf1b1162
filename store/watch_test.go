package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"

	"proa.dev/kv"
)

// TestReconnect closes the connections again and again. The watch must go on without an error, and deliver every
// acknowledged write.
func TestReconnect(t *testing.T) {
	o := serveEtcd(t)
	e := connectTo(t, o.addr)
	start, err := e.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const rounds, each = 5, 40
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	seen := make(chan string, rounds*each)
	wg.Go(func() {
		defer close(seen)
		last := start
		for b, err := range e.Watch(ctx, "/a/", start) {
			if err != nil {
				t.Error(err)
				return
			}
			for _, c := range b.Changes {
				if c.Rev <= last {
					t.Errorf("revision %d after %d", c.Rev, last)
				}
				last = c.Rev
				seen <- c.Key
			}
		}
	})
	var want []string
	for r := range rounds {
		for i := range each {
			// Half of the writes happen while the watch has no connection.
			if i == each/2 {
				o.closeConnections()
			}
			k := fmt.Sprintf("/a/%d-%02d", r, i)
			put(t, o.etcd, k)
			want = append(want, k)
		}
		o.listen()
	}
	for _, k := range want {
		if got := <-seen; got != k {
			t.Fatalf("got %s, want %s", got, k)
		}
	}
	cancel()
	wg.Wait()
}

// TestReconnectDuringProgressRequests closes the connection of a watch while progress is requested all the time, as it is
// while clients list. The requests must not postpone the next attempt to connect.
func TestReconnectDuringProgressRequests(t *testing.T) {
	o := serveEtcd(t)
	e := connectTo(t, o.addr)
	start, err := e.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan string, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		for b, err := range e.Watch(ctx, "/a/", start) {
			if err != nil {
				t.Error(err)
				return
			}
			for _, c := range b.Changes {
				seen <- c.Key
			}
		}
	})
	put(t, o.etcd, "/a/before")
	<-seen
	e.wanted.Store(math.MaxInt64)
	var asking sync.WaitGroup
	asking.Go(func() {
		for tick := time.NewTicker(minReconnect / 4); ctx.Err() == nil; <-tick.C {
			e.wakeWatches()
		}
	})
	o.closeConnections()
	put(t, o.etcd, "/a/meanwhile")
	o.listen()
	select {
	case got := <-seen:
		if got != "/a/meanwhile" {
			t.Errorf("got %s", got)
		}
	case <-time.After(time.Minute):
		t.Error("the watch has not connected again")
	}
	cancel()
	wg.Wait()
	asking.Wait()
}

// put writes to the etcd server directly, not through its socket.
func put(t *testing.T, etcd *etcdserver.EtcdServer, key string) {
	t.Helper()
	if _, err := etcd.Txn(t.Context(), transaction([]kv.Write{{Key: key, Value: []byte("1")}}, nil)); err != nil {
		t.Fatal(err)
	}
}

// TestWatchEndsWithStore checks that watches end when the store is closed.
func TestWatchEndsWithStore(t *testing.T) {
	for name, open := range map[string]func() *Etcd{
		"embedded": func() *Etcd { return embed(t, t.TempDir()) },
		"external": func() *Etcd { return connectTo(t, serveEtcd(t).addr) },
	} {
		t.Run(name, func(t *testing.T) {
			e := open()
			var wg sync.WaitGroup
			for i := range 4 {
				ready := make(chan struct{})
				wg.Go(func() {
					var last error
					for b, err := range e.Watch(t.Context(), "/"+strconv.Itoa(i)+"/", 0) {
						if len(b.Changes) > 0 {
							close(ready)
						}
						last = err
					}
					if !errors.Is(last, kv.ErrUnavailable) {
						t.Errorf("the watch ended with %v", last)
					}
				})
				if _, err := e.Commit(t.Context(), kv.Write{Key: fmt.Sprintf("/%d/x", i), Value: []byte("1")}); err != nil {
					t.Fatal(err)
				}
				<-ready
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			_, _, err := e.Get(t.Context(), "/0/x")
			if !errors.Is(err, kv.ErrUnavailable) {
				t.Errorf("get after close: %v", err)
			}
			for _, err := range e.Watch(t.Context(), "/", 0) {
				if !errors.Is(err, kv.ErrUnavailable) {
					t.Errorf("watch after close: %v", err)
				}
			}
		})
	}
}
