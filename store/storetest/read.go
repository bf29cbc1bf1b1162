package storetest

import (
	"fmt"
	"slices"
	"strings"

	"proa.dev/kv"
)

func keys(p kv.Page) string {
	var out []string
	for _, pair := range p.Pairs {
		out = append(out, pair.Key)
	}
	return strings.Join(out, " ")
}

func list(b *bench) {
	for _, k := range []string{"/a/z", "/a/x", "/a/x/1", "/b/x", "/a", "/a0", "/a/\xff\xff"} {
		b.put(k, k, 0)
	}
	rev := b.commit()
	for _, c := range []struct {
		r    kv.Range
		want string
	}{
		{kv.Range{Prefix: "/a/"}, "/a/x /a/x/1 /a/z /a/\xff\xff"},
		{kv.Range{Prefix: "/a"}, "/a /a/x /a/x/1 /a/z /a/\xff\xff /a0"},
		{kv.Range{Prefix: "/a/x"}, "/a/x /a/x/1"},
		{kv.Range{Prefix: "/a/\xff"}, "/a/\xff\xff"},
		{kv.Range{Prefix: "/c/"}, ""},
		{kv.Range{Prefix: "/a/", From: "/a/x\x00"}, "/a/x/1 /a/z /a/\xff\xff"},
		{kv.Range{Prefix: "/a/", From: "/a/z"}, "/a/z /a/\xff\xff"},
	} {
		p := b.list(c.r)
		if got := keys(p); got != c.want {
			b.Errorf("list %+v: got %q, want %q", c.r, got, c.want)
		}
		if p.Rev != rev || p.Total != int64(len(p.Pairs)) {
			b.Errorf("list %+v: revision %d and total %d", c.r, p.Rev, p.Total)
		}
		for _, pair := range p.Pairs {
			if string(pair.Value) != pair.Key || pair.Rev == 0 {
				b.Errorf("list %+v: got %s", c.r, show(pair))
			}
		}
	}
}

func listEverything(b *bench) {
	b.put("/a/x", "1", 0)
	b.put("b", "1", 0)
	b.put("\xff\xff", "1", 0)
	if got, want := keys(b.list(kv.Range{})), "/a/x b \xff\xff"; got != want {
		b.Errorf("got %q, want %q", got, want)
	}
	if got, want := keys(b.list(kv.Range{Prefix: "\xff"})), "\xff\xff"; got != want {
		b.Errorf("got %q, want %q", got, want)
	}
}

// listPages reads page after page at the revision of the first one, while the keys change.
func listPages(b *bench) {
	const n, limit = 25, 10
	var want []string
	for i := range n {
		k := fmt.Sprintf("/a/%03d", i)
		b.put(k, "old", 0)
		want = append(want, k)
	}
	var got []string
	r := kv.Range{Prefix: "/a/", Limit: limit}
	for {
		p := b.list(r)
		if left := int64(n - len(got)); p.Total != left {
			b.Fatalf("total %d, want %d", p.Total, left)
		}
		if r.Rev != 0 && p.Rev != r.Rev {
			b.Fatalf("page at revision %d, want %d", p.Rev, r.Rev)
		}
		for _, pair := range p.Pairs {
			if string(pair.Value) != "old" {
				b.Fatalf("got %s", show(pair))
			}
			got = append(got, pair.Key)
		}
		if p.Total == int64(len(p.Pairs)) {
			break
		}
		if len(p.Pairs) != limit {
			b.Fatalf("page of %d", len(p.Pairs))
		}
		last := p.Pairs[len(p.Pairs)-1]
		r.Rev, r.From = p.Rev, last.Key+"\x00"
		b.put(last.Key, "new", last.Rev)
		b.put(last.Key+"/added", "new", 0)
		if after := b.list(kv.Range{Prefix: want[n-1]}).Pairs; len(after) == 1 {
			b.remove(want[n-1], after[0].Rev)
		}
	}
	if !slices.Equal(got, want) {
		b.Fatalf("got %v", got)
	}
}

func listPast(b *bench) {
	first := b.put("/a/x", "1", 0)
	second := b.put("/a/x", "2", first)
	third := b.remove("/a/x", second)
	b.put("/a/y", "1", 0)
	for rev, want := range map[int64]string{first: "1", second: "2", third: ""} {
		p := b.list(kv.Range{Prefix: "/a/", Rev: rev})
		got := ""
		if len(p.Pairs) == 1 {
			got = string(p.Pairs[0].Value)
		}
		if got != want || len(p.Pairs) > 1 || p.Rev != rev {
			b.Errorf("at %d: got %q (%d pairs) at %d, want %q", rev, got, len(p.Pairs), p.Rev, want)
		}
	}
}

func listFuture(b *bench) {
	rev := b.put("/a/x", "1", 0)
	_, err := b.s.List(b.ctx, kv.Range{Prefix: "/a/", Rev: rev + 1000})
	b.wantErr(err, kv.ErrFuture)
}

func compaction(b *bench) {
	first := b.put("/a/x", "1", 0)
	second := b.put("/a/x", "2", first)
	third := b.put("/a/x", "3", second)
	if err := b.s.Compact(b.ctx, second); err != nil {
		b.Fatal(err)
	}
	_, err := b.s.List(b.ctx, kv.Range{Prefix: "/a/", Rev: first})
	b.wantErr(err, kv.ErrCompacted)
	if p := b.list(kv.Range{Prefix: "/a/", Rev: second}); len(p.Pairs) != 1 || string(p.Pairs[0].Value) != "2" {
		b.Fatalf("got %+v", p)
	}
	b.wantPair("/a/x", "3", third)
	if err := b.s.Compact(b.ctx, first); err != nil {
		b.Fatalf("compact what is compacted: %v", err)
	}
}
