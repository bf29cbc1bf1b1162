package memory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"proa.dev/kv"
	"proa.dev/store"
	"proa.dev/store/storetest"
)

// FuzzSameAsEtcd runs the same operations on this store and on an embedded etcd. All results must be the same, including
// revisions. The bytes of the input choose the operations. Run the fuzzer with -fuzzminimizetime=1x: etcd's goroutines make
// coverage differ from run to run, so minimizing an input would never end.
func FuzzSameAsEtcd(f *testing.F) {
	for _, seed := range []byte{0, 14, 20, 26, 31} {
		program := make([]byte, 1500)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(program) // it never fails
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		etcd, err := store.Embed(t.Context(), store.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer etcd.Close()
		s := open(t)
		p := &opProgram{code: code[:min(len(code), 3000)], revs: map[string]int64{}, rev: 1}
		for step := 0; len(p.code) > 0; step++ {
			name, run := p.next()
			want, got := run(t.Context(), etcd), run(t.Context(), s)
			if got != want {
				t.Fatalf("step %d, %s:\ngot  %s\nwant %s", step, name, got, want)
			}
			p.readRevisions(s)
		}
	})
}

// opProgram turns bytes into operations. It knows the revisions of keys, so that conditions are often true.
type opProgram struct {
	code []byte
	revs map[string]int64
	rev  int64
}

// pick uses the next byte of the code to choose a number below n.
func (p *opProgram) pick(n int) int {
	if len(p.code) == 0 {
		return 0
	}
	b := p.code[0]
	p.code = p.code[1:]
	return int(b) % n
}

var (
	fuzzKeys     = []string{"/a/x", "/a/x/1", "/a/y", "/a", "/b/x", "/b/\xff\xff", "c"}
	fuzzPrefixes = []string{"", "/", "/a", "/a/", "/a/x", "/b/", "/b/\xff", "/none/"}
)

// pickRevision returns one of the last revisions, or a future one.
func (p *opProgram) pickRevision() int64 { return max(0, p.rev+2-int64(p.pick(24))) }

type operation = func(context.Context, storetest.Store) string

func (p *opProgram) next() (name string, run operation) {
	switch p.pick(10) {
	case 0:
		key := fuzzKeys[p.pick(len(fuzzKeys))]
		return "get " + key, func(ctx context.Context, s storetest.Store) string {
			pair, ok, err := s.Get(ctx, key)
			return fmt.Sprint(show(pair), ok, errorClass(err))
		}
	case 1, 2:
		return p.list()
	case 3:
		prefix := fuzzPrefixes[p.pick(len(fuzzPrefixes))]
		return "fresh " + prefix, func(ctx context.Context, s storetest.Store) string {
			rev, err := s.Fresh(ctx, prefix)
			return fmt.Sprint(rev, errorClass(err))
		}
	case 4:
		if p.pick(3) > 0 {
			return p.watch()
		}
		rev := p.pickRevision()
		return fmt.Sprint("compact ", rev), func(ctx context.Context, s storetest.Store) string {
			return errorClass(s.Compact(ctx, rev))
		}
	case 5:
		return p.watch()
	default:
		return p.commit()
	}
}

func (p *opProgram) list() (string, operation) {
	r := kv.Range{Prefix: fuzzPrefixes[p.pick(len(fuzzPrefixes))], Limit: int64(p.pick(4))}
	if p.pick(2) == 0 {
		r.Rev = p.pickRevision()
	}
	if key := fuzzKeys[p.pick(len(fuzzKeys))]; strings.HasPrefix(key, r.Prefix) {
		r.From = key + "\x00"
	}
	return fmt.Sprintf("list %+v", r), func(ctx context.Context, s storetest.Store) string {
		page, err := s.List(ctx, r)
		var pairs []string
		for _, pair := range page.Pairs {
			pairs = append(pairs, show(pair))
		}
		return fmt.Sprint(pairs, " ", page.Rev, page.Total, errorClass(err))
	}
}

// watch reads all changes from a revision up to the present.
func (p *opProgram) watch() (string, operation) {
	prefix, after, until := fuzzPrefixes[p.pick(len(fuzzPrefixes))], p.pickRevision(), p.rev
	return fmt.Sprintf("watch %s after %d", prefix, after), func(ctx context.Context, s storetest.Store) string {
		if after >= until {
			return "" // there are no changes to deliver
		}
		var out []string
		for b, err := range s.Watch(ctx, prefix, after) {
			for _, c := range b.Changes {
				out = append(out, fmt.Sprint(show(c.Pair), " was ", show(c.Prev), c.Delete))
			}
			if err != nil {
				return errorClass(err)
			}
			if b.Rev >= until {
				break
			}
			if err := s.Progress(ctx); err != nil {
				return errorClass(err)
			}
		}
		return strings.Join(out, ", ")
	}
}

func (p *opProgram) commit() (string, operation) {
	var writes []kv.Write
	for range 1 + p.pick(3)*p.pick(2) {
		key := fuzzKeys[p.pick(len(fuzzKeys))]
		w := kv.Write{Key: key, Rev: p.revs[key]}
		switch what := p.pick(16); {
		case what == 0:
			w.Rev = p.pickRevision()
		case what == 1:
			w.Keep = true
		case what == 2:
			w.Key = ""
		case what < 6:
			// A deletion, which changes nothing if the key does not exist.
		case what == 6:
			w.Value = []byte{}
		default:
			w.Value = fmt.Append(nil, len(p.code))
			w.TTL = int64(p.pick(2)) * 3600
		}
		writes = append(writes, w)
	}
	return fmt.Sprintf("commit %+v", writes), func(ctx context.Context, s storetest.Store) string {
		rev, err := s.Commit(ctx, writes...)
		return fmt.Sprint(rev, errorClass(err))
	}
}

// readRevisions reads the current revisions without using the tested operations, which raise watermarks.
func (p *opProgram) readRevisions(s *Store) {
	for _, key := range fuzzKeys {
		p.revs[key] = s.item(key).now().Rev
	}
	p.rev = s.rev
}

func show(p kv.Pair) string { return fmt.Sprintf("%q=%q@%d", p.Key, p.Value, p.Rev) }

// errorClass returns the kv error of an error.
func errorClass(err error) string {
	if c, ok := errors.AsType[*kv.Conflict](err); ok {
		return fmt.Sprintf("conflict %s %s", c.Key, show(c.Now))
	}
	for _, known := range []error{kv.ErrCompacted, kv.ErrFuture, kv.ErrUnavailable, kv.ErrTooLarge} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "some error"
	}
	return ""
}
