package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/objectmeta"
)

// transaction collects the writes that a kind and admission plugins add to the write of an object: claims, and other
// objects.
type transaction struct {
	*requestServices
	server      *Server
	ctx         context.Context // of the one write that the transaction belongs to
	dryRun      bool
	writes      []kv.Write
	claimErrors map[string]error // by key: the error when another writer has claimed it; nil to try again
	retryErrors map[string]error // by key of a replaced object: the error when too many attempts have failed
	err         error
}

// waitToRetry waits before the transaction is tried again because another writer has changed a key of it. The wait is
// random, so that two servers do not keep meeting each other. It returns an error when there were too many attempts.
func (t *transaction) waitToRetry(ctx context.Context, key string, try int) error {
	retryErr, replaced := t.retryErrors[key]
	switch {
	case try < 100 && !replaced:
		return nil
	case try < 100:
		return wait.Sleep(ctx, rand.N(time.Millisecond<<min(try, 6)))
	case replaced:
		return retryErr
	}
	return fmt.Errorf("could not claim %s", key)
}

// onConflict sets the error for a conflict at a key; with nil the transaction is tried again.
func (t *transaction) onConflict(key string, conflict error) {
	if t.claimErrors == nil {
		t.claimErrors = map[string]error{}
	}
	t.claimErrors[key] = conflict
}

// Claim adds a key that only one owner can have. The error is that of the write when another owner has it; nil to try
// again.
func (t *transaction) Claim(key, owner string, taken error) {
	t.onConflict(key, taken)
	t.writes = append(t.writes, kv.Write{Key: key, Value: []byte(owner)})
}

// Release gives a claimed key back.
func (t *transaction) Release(key string) { t.deleteKey(key) }

// deleteKey adds the deletion of a key, if it exists.
func (t *transaction) deleteKey(key string) {
	now, found, err := t.server.State.Store.Get(t.ctx, key)
	if err != nil {
		t.err = apistatus.FromStore(err)
	}
	if found {
		t.onConflict(key, nil)
		t.writes = append(t.writes, kv.Write{Key: key, Rev: now.Rev})
	}
}

// Create adds another new object. taken is the error of the write when its name is taken.
func (t *transaction) Create(gr schema.GroupResource, obj kind.Object, taken error) {
	def := t.server.State.Def(gr)
	obj.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
	objectmeta.AssignIdentity(obj)
	def.Default(obj)
	r := &Request{Def: def}
	r.Options.Manager = FieldManager
	obj = t.server.updateFieldOwners(r, def.New(), obj)
	def.Prepare(obj, nil)
	value, err := t.server.State.Codec.Store(def, obj)
	if err != nil {
		t.err = err
		return
	}
	key := def.Key(obj.GetNamespace(), obj.GetName())
	t.onConflict(key, taken)
	t.writes = append(t.writes, kv.Write{Key: key, Value: value})
}

// Delete adds the deletion of another object.
func (t *transaction) Delete(gr schema.GroupResource, namespace, name string) {
	t.deleteKey(t.server.State.Def(gr).Key(namespace, name))
}

// Replace adds a new version of another object.
func (t *transaction) Replace(gr schema.GroupResource, obj kind.Object) {
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
	t.onConflict(key, nil)
	if t.retryErrors == nil {
		t.retryErrors = map[string]error{}
	}
	t.retryErrors[key] = apistatus.Modified(def, obj.GetName())
	t.writes = append(t.writes, kv.Write{Key: key, Value: value, Rev: rev})
}

// DryRun says that the transaction will not be committed.
func (t *transaction) DryRun() bool { return t.dryRun }
