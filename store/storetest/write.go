package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"proa.dev/kv"
)

func createAndGet(b *bench) {
	rev := b.put("/a/x", "1", 0)
	if rev <= 0 {
		b.Fatalf("revision %d", rev)
	}
	b.wantPair("/a/x", "1", rev)
	next := b.put("/a/x", "2", rev)
	if next <= rev {
		b.Fatalf("revision went from %d to %d", rev, next)
	}
	b.wantPair("/a/x", "2", next)
}

func getAbsent(b *bench) {
	b.put("/a/xy", "1", 0)
	b.wantPair("/a/x", "", 0)
}

func emptyValue(b *bench) {
	rev := b.commit(kv.Write{Key: "/a/x", Value: []byte{}})
	b.wantPair("/a/x", "", rev)
}

func createConflict(b *bench) {
	rev := b.put("/a/x", "1", 0)
	now := b.conflict("/a/x", kv.Write{Key: "/a/x", Value: []byte("2")})
	if now.Key != "/a/x" || string(now.Value) != "1" || now.Rev != rev {
		b.Fatalf("conflict shows %s", show(now))
	}
	b.wantPair("/a/x", "1", rev)
}

func updateConflict(b *bench) {
	old := b.put("/a/x", "1", 0)
	rev := b.put("/a/x", "2", old)
	now := b.conflict("/a/x", kv.Write{Key: "/a/x", Value: []byte("3"), Rev: old})
	if string(now.Value) != "2" || now.Rev != rev {
		b.Fatalf("conflict shows %s", show(now))
	}
	now = b.conflict("/a/x", kv.Write{Key: "/a/x", Rev: old})
	if now.Rev != rev {
		b.Fatalf("conflict of a delete shows %s", show(now))
	}
	b.wantPair("/a/x", "2", rev)
}

func conflictOfAbsent(b *bench) {
	now := b.conflict("/a/x", kv.Write{Key: "/a/x", Value: []byte("1"), Rev: 7})
	if now.Rev != 0 || now.Value != nil {
		b.Fatalf("conflict shows %s", show(now))
	}
	b.wantPair("/a/x", "", 0)
}

func deleteAndRecreate(b *bench) {
	rev := b.put("/a/x", "1", 0)
	gone := b.remove("/a/x", rev)
	if gone <= rev {
		b.Fatalf("revision went from %d to %d", rev, gone)
	}
	b.wantPair("/a/x", "", 0)
	if now := b.conflict("/a/x", kv.Write{Key: "/a/x", Rev: rev}); now.Rev != 0 {
		b.Fatalf("conflict shows %s", show(now))
	}
	again := b.put("/a/x", "2", 0)
	b.wantPair("/a/x", "2", again)
	b.conflict("/a/x", kv.Write{Key: "/a/x", Value: []byte("3"), Rev: rev})
}

func transaction(b *bench) {
	x := b.put("/a/x", "1", 0)
	y := b.put("/a/y", "1", 0)
	rev := b.commit(
		kv.Write{Key: "/a/x", Value: []byte("2"), Rev: x},
		kv.Write{Key: "/a/y", Rev: y},
		kv.Write{Key: "/b/z", Value: []byte("1")},
	)
	b.wantPair("/a/x", "2", rev)
	b.wantPair("/a/y", "", 0)
	b.wantPair("/b/z", "1", rev)
}

func allOrNothing(b *bench) {
	x := b.put("/a/x", "1", 0)
	y := b.put("/a/y", "1", 0)
	b.conflict("/a/y",
		kv.Write{Key: "/a/x", Value: []byte("2"), Rev: x},
		kv.Write{Key: "/b/z", Value: []byte("1")},
		kv.Write{Key: "/a/y", Rev: y + 100},
	)
	b.wantPair("/a/x", "1", x)
	b.wantPair("/a/y", "1", y)
	b.wantPair("/b/z", "", 0)
}

func conflictNamesFirst(b *bench) {
	x := b.put("/a/x", "1", 0)
	b.put("/a/y", "1", 0)
	now := b.conflict("/a/y",
		kv.Write{Key: "/a/x", Rev: x},
		kv.Write{Key: "/a/y", Value: []byte("2")},
		kv.Write{Key: "/a/z", Value: []byte("2"), Rev: 9},
	)
	if string(now.Value) != "1" {
		b.Fatalf("conflict shows %s", show(now))
	}
}

func keepOnlyChecks(b *bench) {
	x := b.put("/a/x", "1", 0)
	rev := b.commit(
		kv.Write{Key: "/a/x", Rev: x, Keep: true},
		kv.Write{Key: "/a/absent", Keep: true},
		kv.Write{Key: "/a/y", Value: []byte("1")},
	)
	b.wantPair("/a/x", "1", x)
	b.wantPair("/a/absent", "", 0)
	b.wantPair("/a/y", "1", rev)
	b.conflict("/a/x", kv.Write{Key: "/a/x", Rev: rev, Keep: true}, kv.Write{Key: "/a/z", Value: []byte("1")})
	b.wantPair("/a/z", "", 0)
	if same := b.commit(kv.Write{Key: "/a/x", Rev: x, Keep: true}); same != rev {
		b.Fatalf("a transaction that changes nothing has revision %d, want %d", same, rev)
	}
}

func commitNothing(b *bench) {
	rev := b.put("/a/x", "1", 0)
	if same := b.commit(); same != rev {
		b.Fatalf("revision %d, want %d", same, rev)
	}
	if same := b.commit(kv.Write{Key: "/a/absent"}); same != rev {
		b.Fatalf("deleting what is absent has revision %d, want %d", same, rev)
	}
}

func tooLarge(b *bench) {
	_, err := b.s.Commit(b.ctx, kv.Write{Key: "/a/x", Value: make([]byte, 8<<20)})
	b.wantErr(err, kv.ErrTooLarge)
	b.wantPair("/a/x", "", 0)
	var writes []kv.Write
	for i := range 5000 {
		writes = append(writes, kv.Write{Key: "/a/" + strconv.Itoa(i), Value: []byte("1")})
	}
	_, err = b.s.Commit(b.ctx, writes...)
	b.wantErr(err, kv.ErrTooLarge)
	rev := b.commit(kv.Write{Key: "/a/x", Value: make([]byte, 1<<20)})
	if p, _, err := b.s.Get(b.ctx, "/a/x"); err != nil || len(p.Value) != 1<<20 || p.Rev != rev {
		b.Fatalf("got %d bytes at %d, %v", len(p.Value), p.Rev, err)
	}
}

func canceled(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err := b.s.Commit(ctx, kv.Write{Key: "/a/x", Value: []byte("1")})
	b.wantErr(err, kv.ErrUnavailable)
	b.wantErr(err, context.Canceled)
}

// contention lets concurrent writers increment one counter, and checks that no increment is lost.
func contention(b *bench) {
	const writers, each = 8, 25
	b.put("/a/n", "0", 0)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				if err := increment(b); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	p, _, err := b.s.Get(b.ctx, "/a/n")
	if want := strconv.Itoa(writers * each); err != nil || string(p.Value) != want {
		b.Fatalf("counted to %s, want %s (%v)", p.Value, want, err)
	}
}

func increment(b *bench) error {
	p, _, err := b.s.Get(b.ctx, "/a/n")
	if err != nil {
		return err
	}
	for {
		n, err := strconv.Atoi(string(p.Value))
		if err != nil {
			return err
		}
		_, err = b.s.Commit(b.ctx, kv.Write{Key: "/a/n", Value: strconv.AppendInt(nil, int64(n+1), 10), Rev: p.Rev})
		c, ok := errors.AsType[*kv.Conflict](err)
		if !ok {
			return err
		}
		p = c.Now
	}
}

func ttl(b *bench) {
	changes := b.follow("/a/", b.commit())
	rev := b.commit(
		kv.Write{Key: "/a/short", Value: []byte("1"), TTL: 1},
		kv.Write{Key: "/a/long", Value: []byte("1"), TTL: 3600},
	)
	changes.want(put("/a/short", "1", rev), put("/a/long", "1", rev))
	got := changes.next()
	if !got.Delete || got.Key != "/a/short" || got.Prev.Rev != rev || string(got.Prev.Value) != "1" {
		b.Fatalf("got %s, want the end of /a/short", showChange(got))
	}
	b.wantPair("/a/short", "", 0)
	b.wantPair("/a/long", "1", rev)
	for i := range 20 {
		b.commit(kv.Write{Key: fmt.Sprint("/b/", i), Value: []byte("1"), TTL: 3600})
	}
}

// ttlRemoved checks that a write without TTL removes the TTL of the key.
func ttlRemoved(b *bench) {
	const life = 5 // seconds, so that the last of the three writes is made before the first one expires
	changes := b.follow("/a/", b.commit())
	kept := b.commit(kv.Write{Key: "/a/kept", Value: []byte("1"), TTL: life})
	gone := b.commit(kv.Write{Key: "/a/gone", Value: []byte("1"), TTL: life})
	now := b.put("/a/kept", "2", kept)
	changes.want(put("/a/kept", "1", kept), put("/a/gone", "1", gone), update("/a/kept", "2", now, "1", kept))
	if got := changes.next(); !got.Delete || got.Key != "/a/gone" {
		b.Fatalf("got %s, want the end of /a/gone", showChange(got))
	}
	b.wantPair("/a/kept", "2", now)
}
