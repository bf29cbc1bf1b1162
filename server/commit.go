package server

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/deletion"
	"proa.dev/server/state"
)

// commit is hop 7: one compare-and-swap transaction with the object and everything that belongs to the write, such as
// claims and the use of a quota. old is nil for a new object, obj for a deletion. It returns the object as stored, and
// its revision.
func (s *Server) commit(ctx context.Context, r *Request, obj, old kind.Object, rev int64) (kind.Object, int64, error) {
	def := r.Def.Storage()
	begin := r.Clock.Elapsed()
	s.State.HoldBack(ctx, def)
	r.Clock.WaitedSince(hop.Commit, begin)
	if obj != nil && old != nil && deletion.IsFinished(def, obj) {
		last, rev, err := s.commit(ctx, r, nil, old, rev)
		if err == nil {
			obj.SetResourceVersion(last.GetResourceVersion())
			last = obj
		}
		return last, rev, err
	}
	if obj != nil && len(r.transactionAdditions) > 0 {
		// Writes that change the same quota would be tried in vain against each other. That no quota is exceeded does
		// not depend on the lock: the store compares revisions.
		begin := r.Clock.Elapsed()
		leave, err := s.quotaLocks.Lock(ctx, r.Namespace)
		r.Clock.WaitedSince(hop.Commit, begin)
		if err != nil {
			return nil, 0, err
		}
		defer leave()
	}
	for try := 0; ; try++ {
		next := obj
		tx := &transaction{requestServices: s.services(r), server: s, ctx: ctx, dryRun: r.Options.DryRun}
		if def.Begin != nil && next != nil {
			next = obj.DeepCopyObject().(kind.Object)
		}
		if err := s.addToTransaction(ctx, r, next, old, tx); err != nil {
			return nil, 0, err
		}
		out, rev, err := s.store(ctx, r, next, old, rev, tx)
		r.Clock.Record.Removed = err == nil && obj == nil
		if c, isConflict := errors.AsType[*kv.Conflict](err); isConflict {
			if claimErr, claimed := tx.claimErrors[c.Key]; claimed {
				if claimErr != nil {
					return nil, 0, claimErr
				}
				begin := r.Clock.Elapsed()
				err := tx.waitToRetry(ctx, c.Key, try)
				r.Clock.WaitedSince(hop.Commit, begin)
				if err != nil {
					return nil, 0, err
				}
				continue
			}
		}
		return out, rev, err
	}
}

// addToTransaction lets the kind and the admission plugins add to the transaction of a write.
func (s *Server) addToTransaction(ctx context.Context, r *Request, obj, old kind.Object, tx *transaction) error {
	if begin := r.Def.Storage().Begin; begin != nil {
		if err := begin(ctx, tx, obj, old); err != nil {
			return err
		}
	}
	if obj != nil && !r.Options.DryRun {
		for _, add := range r.transactionAdditions {
			if err := add(ctx, tx); err != nil {
				r.Clock.Refuse(hop.Validate) // a plugin of that hop has refused it, as late as now
				return err
			}
		}
	}
	return tx.err
}

// store commits an object with the other writes of its transaction, or deletes old when obj is nil. The object that it
// returns may be shared with the cache and is read-only. old is never changed.
func (s *Server) store(ctx context.Context, r *Request, obj, old kind.Object, rev int64, tx *transaction) (kind.Object, int64, error) {
	def := r.Def.Storage()
	r.unchanged = false
	if obj == nil {
		return s.erase(ctx, r, old, rev, tx)
	}
	w := kv.Write{Key: def.Key(obj.GetNamespace(), obj.GetName()), Rev: rev, TTL: def.TTL}
	var err error
	if w.Value, err = s.State.Codec.Store(def, obj); err != nil {
		return nil, 0, err
	}
	w.UseReserve = s.usesReserve(r.User, def, obj, old, &w)
	if old != nil && len(tx.writes) == 0 {
		unchanged, err := s.isUnchanged(ctx, def, w, old)
		if err != nil {
			return nil, 0, err
		}
		if r.unchanged = unchanged; unchanged {
			out, err := s.State.Codec.Load(def, kv.Pair{Value: w.Value, Rev: rev})
			return out, rev, err // nothing changes, nothing is written
		}
	}
	reserved, err := s.reserveNamespaceBytes(r.User, def, obj, old, &w)
	if err != nil {
		return nil, 0, err
	}
	if reserved > 0 {
		defer s.State.ReleaseBytes(state.Accounted(def, obj.GetNamespace()), reserved)
	}
	if r.Options.DryRun { // as it would have been stored
		out, err := s.State.Codec.Load(def, kv.Pair{Value: w.Value})
		if err != nil {
			return nil, 0, err
		}
		out.SetResourceVersion(obj.GetResourceVersion())
		return s.checkDryRun(ctx, w, out, rev)
	}
	s.State.MarkOccupied(def)
	if r.ProtobufOnly {
		at, err := s.commitWrites(ctx, def, w, tx)
		if err != nil {
			return nil, 0, err
		}
		// What was stored and what is sent are the same bytes but for the version, so the object need not be decoded
		// from them.
		def.Default(obj)
		obj.SetResourceVersion(strconv.FormatInt(at, 10))
		return obj, at, nil
	}
	// The client sees the object as it was stored, which does not distinguish an empty list from none, and so does the
	// cache.
	offer, err := s.State.Offer(def, &w)
	if err != nil {
		return nil, 0, err
	}
	at, err := s.commitWrites(ctx, def, w, tx)
	if err != nil {
		offer.Withdraw()
		return nil, 0, err
	}
	out, accepted := offer.At(at)
	if !accepted {
		out, err = s.State.Codec.Load(def, kv.Pair{Value: w.Value, Rev: at})
	}
	return out, at, err
}

// usesReserve reports whether a write may use the space that is kept free on a disk that is nearly full: it begins a deletion or removes
// finalizers, or a controller or a node makes it on an object that is being deleted, or the server itself needs it to start. Users may keep
// an object that is being deleted for as long as they like, and what else they write to it is ordinary.
func (s *Server) usesReserve(who user.Info, def *kind.Def, obj, old kind.Object, w *kv.Write) bool {
	var groups []string
	if who != nil {
		if who.GetName() == user.APIServerUser {
			return true
		}
		groups = who.GetGroups()
	}
	switch {
	case obj.GetDeletionTimestamp() == nil:
		return false
	case old == nil || old.GetDeletionTimestamp() == nil:
		return true
	case len(obj.GetFinalizers()) < len(old.GetFinalizers()):
		size, known := s.State.StoredSize(def, w.Key, w.Rev)
		return !known || len(w.Value) <= size
	}
	return slices.Contains(groups, user.NodesGroup) || slices.Contains(groups, systemAccounts)
}

// systemAccounts is the group of the controllers of the server, among other service accounts of the system.
const systemAccounts = "system:serviceaccounts:" + metav1.NamespaceSystem

// erase commits the deletion of an object, and gives back its claims.
func (s *Server) erase(ctx context.Context, r *Request, old kind.Object, rev int64, tx *transaction) (kind.Object, int64, error) {
	def := r.Def.Storage()
	w := kv.Write{Key: def.Key(old.GetNamespace(), old.GetName()), Rev: rev, TTL: def.TTL, UseReserve: true}
	if r.Options.DryRun {
		return s.checkDryRun(ctx, w, old, rev)
	}
	at, err := s.commitWrites(ctx, def, w, tx)
	if err != nil {
		return nil, 0, err
	}
	out := old.DeepCopyObject().(kind.Object)
	out.SetResourceVersion(strconv.FormatInt(at, 10))
	return out, at, nil
}

// commitWrites commits a write together with those that were added to its transaction.
func (s *Server) commitWrites(ctx context.Context, def *kind.Def, w kv.Write, tx *transaction) (int64, error) {
	at, err := s.State.Store.Commit(ctx, append([]kv.Write{w}, tx.writes...)...)
	if err == nil {
		s.State.Wrote(def, at)
	}
	return at, passConflict(err)
}

// isUnchanged says that a write would store what is stored already. An object that was stored in an older version, or
// encrypted with an older key, counts as changed even when none of its fields is: that is how stored objects are
// migrated.
func (s *Server) isUnchanged(ctx context.Context, def *kind.Def, w kv.Write, old kind.Object) (bool, error) {
	if size, known := s.State.StoredSize(def, w.Key, w.Rev); known && size != len(w.Value) {
		return false, nil
	}
	oldValue, err := s.State.Codec.Store(def, old.DeepCopyObject().(kind.Object)) // a copy, because encoding changes the object
	if err != nil || !bytes.Equal(oldValue, w.Value) {
		return false, nil //nolint:nilerr // an object that cannot be compared is written
	}
	now, _, err := s.State.Store.Get(ctx, w.Key)
	if err != nil {
		return false, apistatus.FromStore(err)
	}
	return now.Rev == w.Rev && !now.Stale && bytes.Equal(now.Value, w.Value), nil
}

// checkDryRun returns what a write would have stored, or the conflict when the stored revision is another one.
func (s *Server) checkDryRun(ctx context.Context, w kv.Write, obj kind.Object, rev int64) (kind.Object, int64, error) {
	now, _, err := s.State.Store.Get(ctx, w.Key)
	if err != nil {
		return nil, 0, apistatus.FromStore(err)
	}
	if now.Rev != rev {
		return nil, 0, &kv.Conflict{Key: w.Key, Now: now}
	}
	return obj, rev, nil
}

// passConflict translates errors of the store for clients, except conflicts, which the caller retries.
func passConflict(err error) error {
	if _, isConflict := errors.AsType[*kv.Conflict](err); isConflict {
		return err
	}
	return apistatus.FromStore(err)
}
