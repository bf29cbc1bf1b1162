package store

import (
	"fmt"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"proa.dev/internal/wait"
	"proa.dev/kv"
)

// TestLateWatchIsJoinedAgain makes a watch late, as busy processors do, so that etcd delivers to it only ten times a second and a
// thousand revisions each time. It is replaced then, and every change is delivered once, in order.
func TestLateWatchIsJoinedAgain(t *testing.T) {
	e := embed(t, t.TempDir())
	l := e.member.(*local)
	opened, err := l.open(t.Context(), "/a/", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.close()
	s := opened.(*localStream)
	const changes = 12_500 // more than the history is read of at once
	first := s.ws
	s.mu.Lock() // nothing empties the channel of etcd
	before := l.server.KV().Rev()
	var wg sync.WaitGroup
	for writer := range 100 {
		wg.Go(func() {
			for i := range changes / 100 {
				if _, err := e.Commit(t.Context(), kv.Write{Key: fmt.Sprintf("/a/%d/%d", writer, i), Value: []byte("x")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s.mu.Unlock()
	wake := wait.NewSignal()
	for next := 0; next < changes && !t.Failed(); {
		n, err := s.next(t.Context(), wake)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range n.events {
			if next++; ev.Kv.ModRevision != before+int64(next) {
				t.Fatalf("change %d after %d is at %d", next, before, ev.Kv.ModRevision)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ws == first {
		t.Error("the watch of etcd is still the late one")
	}
}

// TestKeyOf checks that the key of a pair is read without decoding the pair, and that other bytes have none.
func TestKeyOf(t *testing.T) {
	pair, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("/a/b"), Value: []byte("x"), ModRevision: 7, CreateRevision: 3})
	if err != nil {
		t.Fatal(err)
	}
	if key, ok := keyOf(pair); !ok || string(key) != "/a/b" {
		t.Errorf("the key is %q, %t", key, ok)
	}
	for _, other := range [][]byte{nil, pair[:3], pair[6:], {0xff}} {
		if key, ok := keyOf(other); ok {
			t.Errorf("%x has the key %q", other, key)
		}
	}
}
