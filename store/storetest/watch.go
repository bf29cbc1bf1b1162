package storetest

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"proa.dev/kv"
)

func watchOrder(b *bench) {
	f := b.follow("/a/", b.commit())
	x1 := b.put("/a/x", "1", 0)
	x2 := b.put("/a/x", "2", x1)
	y1 := b.put("/a/y", "1", 0)
	x3 := b.remove("/a/x", x2)
	x4 := b.put("/a/x", "4", 0)
	f.want(
		put("/a/x", "1", x1),
		update("/a/x", "2", x2, "1", x1),
		put("/a/y", "1", y1),
		remove("/a/x", x3, "2", x2),
		put("/a/x", "4", x4),
	)
}

// watchPast starts watches in the middle and at the end of the history.
func watchPast(b *bench) {
	x1 := b.put("/a/x", "1", 0)
	x2 := b.put("/a/x", "2", x1)
	x3 := b.remove("/a/x", x2)
	all := []kv.Change{put("/a/x", "1", x1), update("/a/x", "2", x2, "1", x1), remove("/a/x", x3, "2", x2)}
	b.follow("/a/", x1-1).want(all...)
	b.follow("/a/", x1).want(all[1:]...)
	b.follow("/a/", x2).want(all[2:]...)
	f := b.follow("/a/", x3)
	x4 := b.put("/a/x", "4", 0)
	f.want(put("/a/x", "4", x4))
}

// watchManyPast starts a watch with more past changes than etcd sends in one message.
func watchManyPast(b *bench) {
	const n = 1500
	start := b.commit()
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := range n / 10 {
				if _, err := b.s.Commit(b.ctx, kv.Write{Key: fmt.Sprintf("/a/%d-%d", w, i), Value: []byte("1")}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	f := b.follow("/a/", start)
	wg.Wait()
	late := b.follow("/a/", start)
	for _, f := range []*follower{f, late} {
		seen := map[string]bool{}
		for range n {
			c := f.next()
			if seen[c.Key] {
				b.Fatalf("%s twice", c.Key)
			}
			seen[c.Key] = true
		}
	}
}

func watchPrefix(b *bench) {
	start := b.commit()
	a, ax, all := b.follow("/a/", start), b.follow("/a/x", start), b.follow("", start)
	r1 := b.put("/a", "1", 0)
	r2 := b.put("/a/x", "1", 0)
	r3 := b.put("/a/xy", "1", 0)
	r4 := b.put("/a/y", "1", 0)
	r5 := b.put("/b/x", "1", 0)
	r6 := b.put("/a/z", "1", 0)
	r7 := b.put("/a/x1", "1", 0)
	a.want(put("/a/x", "1", r2), put("/a/xy", "1", r3), put("/a/y", "1", r4), put("/a/z", "1", r6))
	ax.want(put("/a/x", "1", r2), put("/a/xy", "1", r3), put("/a/x1", "1", r7))
	all.want(put("/a", "1", r1), put("/a/x", "1", r2), put("/a/xy", "1", r3), put("/a/y", "1", r4), put("/b/x", "1", r5))
}

func watchTransaction(b *bench) {
	start := b.commit()
	f := b.follow("/a/", start)
	var writes []kv.Write
	var want []kv.Change
	for i := range 40 {
		k := fmt.Sprintf("/a/%02d", i)
		writes = append(writes, kv.Write{Key: k, Value: []byte("1")}, kv.Write{Key: "/b" + k, Value: []byte("1")})
		want = append(want, put(k, "1", 0))
	}
	rev := b.commit(writes...)
	for i := range want {
		want[i].Rev = rev
	}
	f.want(want...)
	b.follow("/a/", start).want(want...)
}

// watchLarge watches a transaction and a history that do not fit into one message of etcd.
func watchLarge(b *bench) {
	start := b.commit()
	f := b.follow("/a/", start)
	value := string(make([]byte, 300<<10))
	var want []kv.Change
	for i := range 8 {
		var writes []kv.Write
		for j := range 4 {
			writes = append(writes, kv.Write{Key: fmt.Sprintf("/a/%d-%d", i, j), Value: []byte(value)})
		}
		rev := b.commit(writes...)
		for _, w := range writes {
			want = append(want, put(w.Key, value, rev))
		}
	}
	f.want(want...)
	b.follow("/a/", start).want(want...)
}

func watchCompacted(b *bench) {
	x1 := b.put("/a/x", "1", 0)
	x2 := b.put("/a/x", "2", x1)
	x3 := b.put("/a/x", "3", x2)
	x4 := b.put("/a/x", "4", x3)
	if err := b.s.Compact(b.ctx, x3); err != nil {
		b.Fatal(err)
	}
	b.follow("/a/", x1-1).fails(kv.ErrCompacted)
	b.follow("/a/", x3).want(update("/a/x", "4", x4, "3", x3))
}

// watchPrevCompacted starts a watch at a change whose previous pair is compacted.
func watchPrevCompacted(b *bench) {
	x1 := b.put("/a/x", "1", 0)
	x2 := b.put("/a/x", "2", x1)
	b.put("/a/y", "1", 0)
	if err := b.s.Compact(b.ctx, x2); err != nil {
		b.Fatal(err)
	}
	b.follow("/a/", x2-1).fails(kv.ErrCompacted)
}

func watchEnds(b *bench) {
	f := b.follow("/a/", b.commit())
	rev := b.put("/a/x", "1", 0)
	f.want(put("/a/x", "1", rev))
	f.stop()
	for a := range f.in {
		b.Fatalf("got %+v after the end", a)
	}
	for range b.s.Watch(b.ctx, "/a/", rev-1) {
		break
	}
}

// watchSlow reads from a watch only after more changes than fit into any buffer.
func watchSlow(b *bench) {
	const n = 300
	start := b.commit()
	f := &follower{b: b, rev: start}
	rev, seen := b.put("/a/n", "0", 0), 0
	for batch, err := range b.s.Watch(b.ctx, "/a/", start) {
		if err != nil {
			b.Fatal(err)
		}
		if seen == 0 {
			for i := 1; i <= n; i++ {
				rev = b.put("/a/n", strconv.Itoa(i), rev)
			}
		}
		f.check(batch)
		for _, c := range batch.Changes {
			if string(c.Value) != strconv.Itoa(seen) {
				b.Fatalf("got %s, want %d", showChange(c), seen)
			}
			seen++
		}
		if seen > n {
			break
		}
	}
}

// progress raises the revision without a change under the prefix, and checks that the watch reports it.
func progress(b *bench) {
	start := b.put("/a/x", "1", 0)
	f, g := b.follow("/a/", start), b.follow("/c/", start)
	for i := range 5 {
		rev := b.put(fmt.Sprint("/b/", i), "1", 0)
		if err := b.s.Progress(b.ctx); err != nil {
			b.Fatal(err)
		}
		f.reach(rev)
		g.reach(rev)
	}
	rev := b.put("/a/y", "1", 0)
	f.want(put("/a/y", "1", rev))
	late := b.follow("/a/", start-1)
	last := b.put("/b/last", "1", 0)
	if err := b.s.Progress(b.ctx); err != nil {
		b.Fatal(err)
	}
	late.want(put("/a/x", "1", start), put("/a/y", "1", rev))
	late.reach(last)
}

// progressUnderLoad requests progress while watches start in the past and changes are made. A batch must not have a revision
// whose changes were not delivered.
func progressUnderLoad(b *bench) {
	const writers, each = 4, 100
	start := b.commit()
	var fs []*follower
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				prefix := [...]string{"/a/", "/b/"}[i%2]
				if _, err := b.s.Commit(b.ctx, kv.Write{Key: fmt.Sprintf("%s%d-%d", prefix, w, i), Value: []byte("1")}); err != nil {
					b.Error(err)
					return
				}
				if err := b.s.Progress(b.ctx); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for range 5 {
		fs = append(fs, b.follow("/a/", start))
		b.put("/c/"+strconv.Itoa(len(fs)), "1", 0)
	}
	wg.Wait()
	last := b.put("/c/last", "1", 0)
	if err := b.s.Progress(b.ctx); err != nil {
		b.Fatal(err)
	}
	for _, f := range fs {
		n := 0
		for f.rev < last {
			n += len(f.batch().Changes)
		}
		if n != writers*each/2 {
			b.Errorf("saw %d changes, want %d", n, writers*each/2)
		}
	}
}

func fresh(b *bench) {
	for i := range 10 {
		rev := b.put(fmt.Sprintf("/r/a/%d", i), "1", 0)
		b.put(fmt.Sprintf("/r/b/%d", i), "1", 0)
		for _, prefix := range []string{"/r/a/", "/r/", "/r/a", "/r/a/" + strconv.Itoa(i), ""} {
			got, err := b.s.Fresh(b.ctx, prefix)
			if err != nil {
				b.Fatal(err)
			}
			if now := b.commit(); got < rev || got > now {
				b.Fatalf("fresh %q is %d after a write at %d, the store is at %d", prefix, got, rev, now)
			}
		}
	}
}

// freshCoversReads checks that Fresh covers every state that a caller has read from the store.
func freshCoversReads(b *bench) {
	if _, err := b.s.Fresh(b.ctx, "/r/a/"); err != nil {
		b.Fatal(err)
	}
	x := b.put("/r/a/x", "1", 0)
	b.remove("/r/a/x", x)
	p := b.list(kv.Range{Prefix: "/r/a/"})
	got, err := b.s.Fresh(b.ctx, "/r/a/")
	if err != nil || got < p.Rev {
		b.Fatalf("fresh is %d after a list at %d (%v)", got, p.Rev, err)
	}
}

// freshThenWatch checks that a watch that has reached the revision of Fresh has delivered all acknowledged writes.
func freshThenWatch(b *bench) {
	start := b.commit()
	f := b.follow("/r/a/", start)
	for i := range 20 {
		k := fmt.Sprintf("/r/a/%d", i)
		b.put(k, "1", 0)
		b.put(fmt.Sprintf("/r/b/%d", i), "1", 0)
		want, err := b.s.Fresh(b.ctx, "/r/a/")
		if err != nil {
			b.Fatal(err)
		}
		if err := b.s.Progress(b.ctx); err != nil {
			b.Fatal(err)
		}
		found := false
		for f.rev < want {
			for _, c := range f.batch().Changes {
				found = found || c.Key == k
			}
		}
		if !found {
			b.Fatalf("reached %d without %s", want, k)
		}
	}
}

// progressThenWatch checks that Progress also applies to watches that are started afterwards.
func progressThenWatch(b *bench) {
	start := b.commit()
	want := b.put("/r/b/x", "1", 0)
	if err := b.s.Progress(b.ctx); err != nil {
		b.Fatal(err)
	}
	for f := b.follow("/r/a/", start); f.rev < want; {
		f.batch()
	}
}

// watchThenGet checks that a read after a watch event sees the change.
func watchThenGet(b *bench) {
	const writes = 1000
	start := b.commit()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i, rev := 0, int64(0); i < writes; i++ {
			now, err := b.s.Commit(ctx, kv.Write{Key: "/a/x", Value: []byte(strconv.Itoa(i)), Rev: rev})
			if err != nil {
				b.Error(err)
				cancel()
				return
			}
			rev = now
		}
	})
	seen := 0
	for batch, err := range b.s.Watch(ctx, "/a/", start) {
		if err != nil {
			b.Fatal(err)
		}
		seen += len(batch.Changes)
		p, _, err := b.s.Get(ctx, "/a/x")
		if err != nil || p.Rev < batch.Rev {
			b.Fatalf("the watch is at %d, a read finds %d (%v)", batch.Rev, p.Rev, err)
		}
		if seen == writes {
			return
		}
	}
	b.Errorf("saw %d of %d changes", seen, writes)
}
