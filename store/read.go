package store

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"proa.dev/kv"
)

// span is a range of keys [key, end) to read; an empty end means that one key.
type span struct {
	key, end   []byte
	rev, limit int64
	uncounted  bool // the number of keys is not needed
}

// page is the result of reading a span. rev is the current revision, even if a past revision was read.
type page struct {
	kvs        []*mvccpb.KeyValue
	rev, count int64
}

// Get returns the current pair of a key, linearizably, and whether it exists.
func (e *Etcd) Get(ctx context.Context, key string) (kv.Pair, bool, error) {
	ctx, end, err := e.begin(ctx, "get", key)
	if err != nil {
		return kv.Pair{}, false, err
	}
	defer end()
	p, err := e.member.read(ctx, span{key: []byte(key)})
	if err != nil {
		return kv.Pair{}, false, wrapError("get", key, err)
	}
	if len(p.kvs) == 0 {
		e.member.saw(key, p.rev)
		return kv.Pair{}, false, nil
	}
	pair := pairOf(p.kvs[0])
	e.member.saw(key, pair.Rev)
	return pair, true, nil
}

// List returns the pairs of a range in the order of their keys.
func (e *Etcd) List(ctx context.Context, r kv.Range) (kv.Page, error) {
	ctx, end, err := e.begin(ctx, "list", r.Prefix)
	if err != nil {
		return kv.Page{}, err
	}
	defer end()
	s := span{key: firstKey(r.Prefix), end: endOf(r.Prefix), rev: r.Rev, limit: r.Limit, uncounted: r.Uncounted}
	if r.From != "" {
		s.key = []byte(r.From)
	}
	p, err := e.member.read(ctx, s)
	if err != nil {
		return kv.Page{}, wrapError("list", r.Prefix, err)
	}
	out := kv.Page{Pairs: make([]kv.Pair, len(p.kvs)), Rev: p.rev, Total: p.count}
	for i, x := range p.kvs {
		out.Pairs[i] = pairOf(x)
	}
	if r.Rev != 0 {
		out.Rev = r.Rev
	}
	e.member.sawAll(r.Prefix, out.Rev)
	return out, nil
}

func pairOf(x *mvccpb.KeyValue) kv.Pair {
	return kv.Pair{Key: string(x.Key), Value: x.Value, Rev: x.ModRevision}
}

// firstKey returns the smallest key with the prefix. etcd has no empty key.
func firstKey(prefix string) []byte {
	if prefix == "" {
		return []byte{0}
	}
	return []byte(prefix)
}

// endOf returns the first key after all keys with the prefix. A single zero byte stands for a range without end in
// etcd.
func endOf(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0}
}
