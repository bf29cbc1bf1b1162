package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

func TestFreshness(t *testing.T) {
	var now atomic.Int64
	now.Store(10)
	f := &freshness{current: now.Load}
	want := func(prefix string, rev int64) {
		t.Helper()
		if got := f.fresh(prefix); got != rev {
			t.Errorf("fresh %q is %d, want %d", prefix, got, rev)
		}
	}
	want("/registry/pods/", 10)
	want("/registry/services/specs/", 10)
	now.Store(30)
	f.saw("/registry/services/specs/default/a", 20)
	want("/registry/pods/", 10)
	want("/registry/services/specs/", 20)
	f.saw("/registry/pods/default/a", 30)
	f.saw("/registry/pods/default/a", 25)
	want("/registry/pods/", 30)
	want("/registry/pods", 30)
	want("/registry/pods/default/", 30)
	now.Store(40)
	f.saw("/registry/podsets/default/a", 40)
	want("/registry/pods/", 30)
	want("", 40)
	f.sawAll("/registry/pods/default/", 41)
	want("/registry/pods/", 41)
	want("/registry/services/specs/", 20)
	f.sawAll("/registry/", 42)
	want("/registry/services/specs/", 42)
}

// TestFreshnessRegistration registers prefixes while writers acknowledge writes under them.
func TestFreshnessRegistration(t *testing.T) {
	var now atomic.Int64
	f := &freshness{current: now.Load}
	var wg sync.WaitGroup
	for p := range 200 {
		prefix := fmt.Sprintf("/r/%d/", p)
		for range 2 {
			wg.Go(func() {
				rev := now.Add(1)
				f.saw(prefix+"x", rev)
				if got := f.fresh(prefix); got < rev {
					t.Errorf("fresh %s is %d after a write at %d", prefix, got, rev)
				}
			})
		}
	}
	wg.Wait()
}

func TestFreshnessAllocatesNothing(t *testing.T) {
	f := &freshness{current: func() int64 { return 1 }}
	f.fresh("/registry/pods/")
	if n := testing.AllocsPerRun(100, func() {
		f.saw("/registry/pods/default/a", 7)
		f.fresh("/registry/pods/")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFresh(b *testing.B) {
	f := &freshness{current: func() int64 { return 1 }}
	for i := range 100 {
		f.fresh(fmt.Sprintf("/registry/kind%d/", i))
	}
	rev := int64(1)
	b.ReportAllocs()
	for b.Loop() {
		rev++
		f.saw("/registry/kind7/default/a-pod-with-a-name", rev)
		f.fresh("/registry/kind7/")
	}
}
