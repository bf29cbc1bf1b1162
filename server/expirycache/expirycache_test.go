package expirycache_test

import (
	"testing"
	"time"

	"proa.dev/server/expirycache"
)

func TestEntriesExpire(t *testing.T) {
	now := time.Now()
	c := expirycache.Cache[string, int]{Limit: 8}
	c.Put("a", 1, 0, now.Add(time.Second), now)
	if got, ok := c.Get("a", now); !ok || got != 1 {
		t.Errorf("got %d, %v before the entry expires, want 1", got, ok)
	}
	if _, ok := c.Get("a", now.Add(time.Second)); ok {
		t.Error("an expired entry is returned")
	}
	if _, ok := c.Get("b", now); ok {
		t.Error("an entry is returned that was never added")
	}
}

func TestSizeIsLimited(t *testing.T) {
	now := time.Now()
	c := expirycache.Cache[int, int]{Limit: 64}
	for i := range 32 {
		c.Put(i, i, 0, now.Add(time.Second), now)
	}
	later := now.Add(time.Second)
	for i := range 1000 {
		c.Put(1000+i, i, 0, later.Add(time.Second), later)
		if c.Len() > 64 {
			t.Fatalf("%d entries, the limit is 64", c.Len())
		}
		if got, ok := c.Get(1000+i, later); !ok || got != i {
			t.Fatalf("the newest entry is %d, %v, want %d", got, ok, i)
		}
	}
}

// TestBytesAreLimited checks that large entries displace others, and that too large ones are not kept.
func TestBytesAreLimited(t *testing.T) {
	now := time.Now()
	c := expirycache.Cache[int, int]{}
	for i := range 1000 {
		c.Put(i%500, i, 1<<20, now.Add(time.Second), now)
		if c.Len() > 64 {
			t.Fatalf("%d MiB are kept", c.Len())
		}
		if got, ok := c.Get(i%500, now); !ok || got != i {
			t.Fatalf("the newest entry is %d, %v, want %d", got, ok, i)
		}
	}
	c.Put(-1, 0, 1<<20+1, now.Add(time.Second), now)
	if _, ok := c.Get(-1, now); ok {
		t.Error("an entry of more than 1 MiB is kept")
	}
}
