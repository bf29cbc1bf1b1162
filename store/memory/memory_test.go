package memory

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"proa.dev/kv"
	"proa.dev/store/storetest"
)

func open(t testing.TB) *Store {
	t.Helper()
	s := New(Config{})
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func commit(t testing.TB, s *Store, writes ...kv.Write) int64 {
	t.Helper()
	rev, err := s.Commit(t.Context(), writes...)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t) })
}

func TestHook(t *testing.T) {
	hookErr := errors.New("boom")
	var failOp bool
	var calls []string
	s := New(Config{Hook: func(op, key string) error {
		calls = append(calls, op+" "+key)
		if failOp {
			return hookErr
		}
		return nil
	}})
	defer closeStore(t, s)
	for _, failOp = range []bool{false, true} {
		_, err1 := s.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1"), Rev: 0})
		_, _, err2 := s.Get(t.Context(), "/a/x")
		_, err3 := s.List(t.Context(), kv.Range{Prefix: "/a/"})
		_, err4 := s.Fresh(t.Context(), "/a/")
		err5 := s.Progress(t.Context())
		err6 := s.Compact(t.Context(), 1)
		var err7 error
		for _, err7 = range s.Watch(t.Context(), "/a/", 0) {
			break
		}
		err8 := s.Healthy(t.Context())
		_, err9 := s.Size(t.Context())
		_, err10 := s.Commit(t.Context())
		for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9, err10} {
			if failed := errors.Is(err, hookErr) && errors.Is(err, kv.ErrUnavailable); failed != failOp || !failOp && err != nil {
				t.Errorf("operation %d with the hook failing %v: %v", i+1, failOp, err)
			}
		}
	}
	want := "commit /a/x,get /a/x,list /a/,fresh /a/,progress ,compact ,watch /a/,healthy ,size ,revision "
	if got := strings.Join(calls, ","); got != want+","+want {
		t.Errorf("got %s", got)
	}
}

// TestClose checks that Close ends watches, and that later operations fail.
func TestClose(t *testing.T) {
	s := New(Config{})
	var wg sync.WaitGroup
	for i := range 4 {
		ready := make(chan struct{})
		wg.Go(func() {
			var last error
			for b, err := range s.Watch(t.Context(), fmt.Sprintf("/%d/", i), 0) {
				if len(b.Changes) > 0 {
					close(ready)
				}
				last = err
			}
			if !errors.Is(last, kv.ErrUnavailable) {
				t.Errorf("the watch ended with %v", last)
			}
		})
		commit(t, s, kv.Write{Key: fmt.Sprintf("/%d/x", i), Value: []byte("1"), TTL: 3600})
		<-ready
	}
	for range 2 {
		closeStore(t, s)
	}
	wg.Wait()
	if s.timer != nil || len(s.watches) != 0 {
		t.Errorf("left behind: alarm %v, %d watches", s.timer, len(s.watches))
	}
	_, _, err1 := s.Get(t.Context(), "/0/x")
	_, err2 := s.Commit(t.Context(), kv.Write{Key: "/0/y", Value: []byte("1")})
	_, err3 := s.Fresh(t.Context(), "/0/")
	for _, err := range []error{err1, err2, err3, s.Progress(t.Context()), s.Healthy(t.Context())} {
		if !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("after the close: %v", err)
		}
	}
	seen := 0
	for _, err := range s.Watch(t.Context(), "/", 0) {
		seen++
		if !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("watch after close: %v", err)
		}
	}
	if seen != 1 {
		t.Errorf("a watch after the close yields %d times", seen)
	}
}

// TestCommitRefuses checks transactions that are refused regardless of the stored data.
func TestCommitRefuses(t *testing.T) {
	s := open(t)
	rev := commit(t, s, kv.Write{Key: "/a", Value: []byte("1")}, kv.Write{Key: "/b", Value: []byte("1")})
	put, del := kv.Write{Key: "/a", Value: []byte("2"), Rev: rev}, kv.Write{Key: "/a", Rev: rev}
	for want, writes := range map[string][]kv.Write{
		"commit: a write has no key":                                                 {{Value: []byte("1")}},
		"commit /a: a write has no key":                                              {put, {Keep: true}},
		"commit /a: /a is written twice":                                             {put, put},
		"commit /b: /a is written twice":                                             {{Key: "/b", Rev: rev}, del, put},
		"commit /c: /c cannot live for 9000000001 seconds, at most 9000000000":       {{Key: "/c", Value: []byte("1"), TTL: maxTTL + 1}},
		"commit /a: the request is too large for the store: 129 writes, at most 128": fillTo129(put),
	} {
		got, err := s.Commit(t.Context(), writes...)
		if err == nil || err.Error() != want {
			t.Errorf("got %d, %v, want %s", got, err, want)
		}
	}
	if now := commit(t, s); now != rev {
		t.Fatalf("refused transactions moved the store from %d to %d", rev, now)
	}
	// It is allowed to check a key that is also written, and to delete a key twice.
	next := commit(t, s, kv.Write{Key: "/a", Rev: rev, Keep: true}, put, kv.Write{Key: "/b", Rev: rev}, kv.Write{Key: "/b", Rev: rev})
	if next != rev+1 || len(s.log) != 4 {
		t.Errorf("at %d with %d changes", next, len(s.log))
	}
}

func fillTo129(first kv.Write) []kv.Write {
	writes := []kv.Write{first}
	for i := range maxWrites {
		writes = append(writes, kv.Write{Key: fmt.Sprint("/n/", i), Value: []byte("1")})
	}
	return writes
}

// TestValuesAreCopied checks that a writer may reuse its memory, and that appending to a returned value does not change
// others.
func TestValuesAreCopied(t *testing.T) {
	s := open(t)
	buf := append(make([]byte, 0, 100), "one"...)
	rev := commit(t, s, kv.Write{Key: "/a", Value: buf})
	copy(buf, "two")
	p, _, err := s.Get(t.Context(), "/a")
	if err != nil || string(p.Value) != "one" || p.Rev != rev || cap(p.Value) != 3 {
		t.Errorf("got %q with room for %d at %d, %v", p.Value, cap(p.Value), p.Rev, err)
	}
}
