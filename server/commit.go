package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// commit is hop 7: one compare-and-swap transaction with everything the write needs. old is nil on create; obj is nil on
// delete. It returns the object as stored.
func (s *Server) commit(ctx context.Context, r *Request, def *kind.Def, obj, old kind.Object, rev int64) (kind.Object, int64, error) {
	if obj != nil && old != nil && vanishes(def, obj) {
		last, rev, err := s.commit(ctx, r, def, nil, old, rev)
		if err == nil {
			obj.SetResourceVersion(last.GetResourceVersion())
			last = obj
		}
		return last, rev, err
	}
	if obj != nil && len(r.joined) > 0 {
		leave, err := s.turns.take(ctx, r.Namespace)
		if err != nil {
			return nil, 0, err
		}
		defer leave()
	}
	for try := 0; ; try++ {
		next := obj
		tx := &txn{door: s.door(r), server: s, ctx: ctx, dryRun: r.Options.DryRun}
		if def.Begin != nil && next != nil {
			next = obj.DeepCopyObject().(kind.Object)
		}
		if err := s.begin(ctx, r, def, next, old, tx); err != nil {
			return nil, 0, err
		}
		out, rev, err := s.put(ctx, r, def, next, old, rev, tx)
		if c, lost := errors.AsType[*kv.Conflict](err); lost {
			if taken, ours := tx.taken[c.Key]; ours {
				if taken != nil {
					return nil, 0, taken
				}
				if err := tx.again(ctx, c.Key, try); err != nil {
					return nil, 0, err
				}
				continue
			}
		}
		return out, rev, err
	}
}

// begin lets the kind and the admission plugins add to the transaction of a write.
func (s *Server) begin(ctx context.Context, r *Request, def *kind.Def, obj, old kind.Object, tx *txn) error {
	if def.Begin != nil {
		if err := def.Begin(ctx, tx, obj, old); err != nil {
			return err
		}
	}
	if obj != nil && !r.Options.DryRun {
		for _, add := range r.joined {
			if err := add(ctx, tx); err != nil {
				return err
			}
		}
	}
	return tx.err
}

// put makes the transaction of one write and its claims. What it returns may be shared with the cache: it is read-only. old is
// never changed.
func (s *Server) put(ctx context.Context, r *Request, def *kind.Def, obj, old kind.Object, rev int64, tx *txn) (kind.Object, int64, error) {
	if obj == nil {
		return s.erase(ctx, r, def, old, rev, tx)
	}
	w := kv.Write{Key: def.Key(obj.GetNamespace(), obj.GetName()), Rev: rev, TTL: def.TTL, UseReserve: usesReserve(r.User, obj)}
	var err error
	if w.Value, err = s.State.Codec.Store(def, obj); err != nil {
		return nil, 0, err
	}
	if old != nil && len(tx.writes) == 0 {
		same, err := s.same(ctx, def, w, old)
		if err != nil {
			return nil, 0, err
		}
		if same {
			out, err := s.State.Codec.Load(def, kv.Pair{Value: w.Value, Rev: rev})
			return out, rev, err // nothing changes, nothing is written
		}
	}
	if r.Options.DryRun { // as it would have been stored
		out, err := s.State.Codec.Load(def, kv.Pair{Value: w.Value})
		if err != nil {
			return nil, 0, err
		}
		out.SetResourceVersion(obj.GetResourceVersion())
		return s.dry(ctx, w, out, rev)
	}
	s.State.occupy(def)
	if r.compact {
		at, err := s.transact(ctx, w, tx)
		if err != nil {
			return nil, 0, err
		}
		// What was stored and what goes out are the same bytes but for the version: there is nothing to learn from reading it again.
		def.Default(obj)
		obj.SetResourceVersion(strconv.FormatInt(at, 10))
		return obj, at, nil
	}
	// What the client sees is what was stored, which does not tell an empty list from none. So does the cache.
	offer, err := s.State.offer(def, &w)
	if err != nil {
		return nil, 0, err
	}
	at, err := s.transact(ctx, w, tx)
	if err != nil {
		offer.Withdraw()
		return nil, 0, err
	}
	out, ours := offer.At(at)
	if !ours {
		out, err = s.State.Codec.Load(def, kv.Pair{Value: w.Value, Rev: at})
	}
	return out, at, err
}

// usesReserve says that a write may use room that is kept free on a disk that is nearly full: it is part of a deletion, such as the mark
// that an object is to be deleted and the removal of a finalizer, or the server itself needs it to start.
func usesReserve(who user.Info, obj kind.Object) bool {
	return obj.GetDeletionTimestamp() != nil || who != nil && who.GetName() == user.APIServerUser
}

// erase makes the transaction of one deletion and the claims it gives back.
func (s *Server) erase(ctx context.Context, r *Request, def *kind.Def, old kind.Object, rev int64, tx *txn) (kind.Object, int64, error) {
	w := kv.Write{Key: def.Key(old.GetNamespace(), old.GetName()), Rev: rev, TTL: def.TTL, UseReserve: true}
	if r.Options.DryRun {
		return s.dry(ctx, w, old, rev)
	}
	at, err := s.transact(ctx, w, tx)
	if err != nil {
		return nil, 0, err
	}
	out := old.DeepCopyObject().(kind.Object)
	out.SetResourceVersion(strconv.FormatInt(at, 10))
	return out, at, nil
}

// transact commits a write with what belongs to it.
func (s *Server) transact(ctx context.Context, w kv.Write, tx *txn) (int64, error) {
	at, err := s.State.Store.Commit(ctx, append([]kv.Write{w}, tx.writes...)...)
	return at, passConflict(err)
}

// same says that a write would store what is stored already. An object that was stored in another way, by an older version
// or with an older key, is not the same, even if nothing in it changes: that is how stored objects are migrated.
func (s *Server) same(ctx context.Context, def *kind.Def, w kv.Write, old kind.Object) (bool, error) {
	if size, known := s.State.size(def, w.Key, w.Rev); known && size != len(w.Value) {
		return false, nil
	}
	was, err := s.State.Codec.Store(def, old.DeepCopyObject().(kind.Object)) // which touches what it encodes
	if err != nil || !bytes.Equal(was, w.Value) {
		return false, nil //nolint:nilerr // what cannot be compared is written
	}
	now, _, err := s.State.Store.Get(ctx, w.Key)
	if err != nil {
		return false, storeError(err)
	}
	return now.Rev == w.Rev && !now.Stale && bytes.Equal(now.Value, w.Value), nil
}

// dry answers what a write would have done; the existence of the key is still checked.
func (s *Server) dry(ctx context.Context, w kv.Write, obj kind.Object, rev int64) (kind.Object, int64, error) {
	now, _, err := s.State.Store.Get(ctx, w.Key)
	if err != nil {
		return nil, 0, storeError(err)
	}
	if now.Rev != rev {
		return nil, 0, &kv.Conflict{Key: w.Key, Now: now}
	}
	return obj, rev, nil
}

// passConflict leaves a conflict as it is and translates the rest.
func passConflict(err error) error {
	if _, lost := errors.AsType[*kv.Conflict](err); lost {
		return err
	}
	return storeError(err)
}

// txn collects what a kind adds to the transaction of a write.
type txn struct {
	*door
	server *Server
	ctx    context.Context // of the one write this transaction belongs to
	dryRun bool
	writes []kv.Write
	taken  map[string]error // what a lost claim means, by key
	worn   map[string]error // what it means when replacing an object was in vain too often, by key
	err    error
}

// again waits before the transaction is tried again because of a lost key. Another server has won it: who waits a random
// time does not meet it at the same moment once more.
func (t *txn) again(ctx context.Context, key string, try int) error {
	worn, replaced := t.worn[key]
	switch {
	case try < 100 && !replaced:
		return nil
	case try < 100:
		return pause(ctx, rand.N(time.Millisecond<<min(try, 6)))
	case replaced:
		return worn
	}
	return fmt.Errorf("could not claim %s", key)
}

func (t *txn) expect(key string, taken error) {
	if t.taken == nil {
		t.taken = map[string]error{}
	}
	t.taken[key] = taken
}

// Claim takes a key for an owner.
func (t *txn) Claim(key, owner string, taken error) {
	t.expect(key, taken)
	t.writes = append(t.writes, kv.Write{Key: key, Value: []byte(owner)})
}

// Release gives a key back.
func (t *txn) Release(key string) { t.drop(key) }

func (t *txn) drop(key string) {
	now, found, err := t.server.State.Store.Get(t.ctx, key)
	if err != nil {
		t.err = storeError(err)
	}
	if found {
		t.expect(key, nil)
		t.writes = append(t.writes, kv.Write{Key: key, Rev: now.Rev})
	}
}

// Create adds another object.
func (t *txn) Create(gr schema.GroupResource, obj kind.Object, taken error) {
	def := t.server.State.Def(gr)
	obj.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
	birth(obj)
	def.Default(obj)
	r := &Request{Def: def}
	r.Options.Manager = self
	obj = t.server.own(r, def.New(), obj)
	def.Prepare(obj, nil)
	value, err := t.server.State.Codec.Store(def, obj)
	if err != nil {
		t.err = err
		return
	}
	key := def.Key(obj.GetNamespace(), obj.GetName())
	t.expect(key, taken)
	t.writes = append(t.writes, kv.Write{Key: key, Value: value})
}

// Delete removes another object.
func (t *txn) Delete(gr schema.GroupResource, namespace, name string) {
	t.drop(t.server.State.Def(gr).Key(namespace, name))
}

// Replace stores a new version of another object.
func (t *txn) Replace(gr schema.GroupResource, obj kind.Object) {
	def := t.server.State.Def(gr)
	rev, err := revision(obj)
	if err != nil {
		t.err = err
		return
	}
	value, err := t.server.State.Codec.Store(def, obj)
	if err != nil {
		t.err = err
		return
	}
	key := def.Key(obj.GetNamespace(), obj.GetName())
	t.expect(key, nil)
	if t.worn == nil {
		t.worn = map[string]error{}
	}
	t.worn[key] = modified(def, obj.GetName())
	t.writes = append(t.writes, kv.Write{Key: key, Value: value, Rev: rev})
}

// DryRun says that nothing will be written.
func (t *txn) DryRun() bool { return t.dryRun }
