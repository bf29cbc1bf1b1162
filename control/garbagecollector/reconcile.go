package garbagecollector

import (
	"context"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/parallel"
	"proa.dev/kinds/kind"
)

// item is an object with its resource.
type item struct {
	Resource
	kind.Object
}

// reconciler is the state of one reconcile.
type reconciler struct {
	g *Collector
	c *control.Cluster

	mu               sync.Mutex         // guards what follows
	absent           map[string]bool    // owners that the store does not have; a UID is never used again
	inOtherNamespace map[types.UID]bool // whether an owner exists in another namespace
}

// maxConcurrent bounds the objects that one reconcile works on concurrently.
const maxConcurrent = 16

// forEach calls do for many objects concurrently.
func (l *reconciler) forEach(ctx context.Context, items []item, do func(context.Context, item) error) error {
	return errors.Join(append(parallel.ForEach(len(items), maxConcurrent, func(i int) error {
		if ctx.Err() != nil {
			return nil // joined with the reason below, once
		}
		return do(ctx, items[i])
	}), context.Cause(ctx))...)
}

// reconcileObject reconciles an object that exists.
func (l *reconciler) reconcileObject(ctx context.Context, it item) error {
	switch {
	case orphansDependents(it):
		return l.orphanDependents(ctx, it)
	case waitsForDependents(it):
		return l.deleteDependents(ctx, it)
	}
	return l.reconcileDependent(ctx, it)
}

// reconcileNamespace reconciles all objects of a namespace, and with kube-system also those without a namespace.
func (l *reconciler) reconcileNamespace(ctx context.Context, name string) error {
	var items []item
	for _, r := range l.g.table.Load().all {
		if v := l.c.View(r.GroupResource); v != nil && (r.Namespaced || name == metav1.NamespaceSystem) {
			in := name
			if !r.Namespaced {
				in = ""
			}
			for o := range v.List(in) {
				if orphansDependents(o) || waitsForDependents(o) || l.g.mayBeGarbage(l.c, o) {
					items = append(items, item{r, o})
				}
			}
		}
	}
	return l.forEach(ctx, items, l.reconcileObject)
}

// reconcileDependent decides about an object by its owners, and carries the decision out.
func (l *reconciler) reconcileDependent(ctx context.Context, it item) error {
	refs := it.GetOwnerReferences()
	if it.GetDeletionTimestamp() != nil || len(refs) == 0 {
		return nil
	}
	stand := make([]ownerState, len(refs))
	for i := range refs {
		var err error
		if stand[i], err = l.ownerState(ctx, it, refs[i]); err != nil {
			return err
		}
	}
	v := decide(it, stand, dependentFacts{
		hasDependents: func() bool { return l.g.hasDependents(l.c, it.GetUID()) },
		dependentWaits: func() bool {
			return slices.ContainsFunc(l.g.dependents(l.c, it.GetUID()), func(d item) bool { return waitsForDependents(d) })
		},
	})
	return l.apply(ctx, it, v)
}

// ownerState returns the state of the owner that a reference names. Views may lag behind, so the server is asked about an owner
// that they do not have.
func (l *reconciler) ownerState(ctx context.Context, it item, ref metav1.OwnerReference) (ownerState, error) {
	on, namespace, ok := l.g.locateOwner(it, ref)
	if !ok {
		if on.Namespaced {
			l.warnWrongNamespace(it, on, ref)
			return ownerUnknown, nil
		}
		return l.unservedState(ref), nil
	}
	v := l.c.View(on.GroupResource)
	var owner kind.Object
	found := false
	switch {
	case v != nil:
		owner, found = v.Get(namespace, ref.Name)
	case l.g.occupied(on):
		return l.unservedState(ref), nil
	}
	if !found || owner.GetUID() != ref.UID {
		key := keyOf(on.GroupResource, namespace, ref.Name, ref.UID)
		stored, err := l.ownerInStore(ctx, on, key)
		if err != nil {
			return 0, err
		}
		if stored != nil {
			owner = stored
		} else {
			l.warnWrongNamespace(it, on, ref)
			return ownerAbsent, nil
		}
	}
	if waitsForDependents(owner) {
		return ownerWaits, nil
	}
	return ownerExists, nil
}

// unservedState returns the state of an owner whose kind is not served: unknown, unless its deletion was seen. A definition is
// deleted right after the last of its objects.
func (l *reconciler) unservedState(ref metav1.OwnerReference) ownerState {
	if _, deleted := l.g.deletedOwners.Load(ref.UID); deleted {
		return ownerAbsent
	}
	return ownerUnknown
}

// ownerInStore reads an owner from the server; nil if it does not exist.
func (l *reconciler) ownerInStore(ctx context.Context, on Resource, k control.Key) (kind.Object, error) {
	_, name, uid, _ := parse(k)
	l.mu.Lock()
	absent := l.absent[k.Namespace+"/"+k.Name]
	l.mu.Unlock()
	if absent {
		return nil, nil
	}
	owner, err := l.c.Get(ctx, on.GroupResource, k.Namespace, name, "")
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil && owner.GetUID() == uid {
		return owner, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.absent[k.Namespace+"/"+k.Name] = true
	return nil, nil
}

// warnWrongNamespace records an Event if an owner exists, but in a namespace that the reference cannot mean.
func (l *reconciler) warnWrongNamespace(it item, on Resource, ref metav1.OwnerReference) {
	if !on.Namespaced || !l.existsInAnyNamespace(on, ref.UID) {
		return
	}
	l.c.Event(it.Object, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		ref.APIVersion, ref.Kind, it.GetNamespace(), ref.Name, ref.UID, it.GetNamespace())
}

// maxWarned bounds the absent owners of one reconcile that are looked for in other namespaces: an object may name twenty thousand.
const maxWarned = 100

// existsInAnyNamespace reports whether an object with the UID exists in any namespace.
func (l *reconciler) existsInAnyNamespace(on Resource, uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if exists, known := l.inOtherNamespace[uid]; known || len(l.inOtherNamespace) >= maxWarned {
		return exists
	}
	if v := l.c.View(on.GroupResource); v != nil {
		for o := range v.List("") {
			if o.GetUID() == uid {
				l.inOtherNamespace[uid] = true
				return true
			}
		}
	}
	l.inOtherNamespace[uid] = false
	return false
}

// apply makes the writes of an action.
func (l *reconciler) apply(ctx context.Context, it item, v action) error {
	o := it.Object
	if len(v.unlink) > 0 {
		return l.unlink(ctx, it, v.unlink...)
	}
	if v.remove == "" {
		return nil
	}
	if v.unblock && slices.ContainsFunc(o.GetOwnerReferences(), isBlocking) {
		next := l.copyOf(it)
		refs := next.GetOwnerReferences()
		for i := range refs {
			if isBlocking(refs[i]) {
				refs[i].BlockOwnerDeletion = new(false)
			}
		}
		next.SetOwnerReferences(refs)
		updated, err := l.c.Update(ctx, it.GroupResource, next, "")
		if err != nil {
			return control.IgnoreNotFound(err)
		}
		o = updated
	}
	return l.remove(ctx, it.Resource, o, v.remove)
}

// remove deletes an object if its owner references are still those that the decision was based on. Other changes meanwhile do
// not prevent the deletion.
func (l *reconciler) remove(ctx context.Context, on Resource, o kind.Object, how metav1.DeletionPropagation) error {
	uid, rev := o.GetUID(), o.GetResourceVersion()
	options := metav1.DeleteOptions{PropagationPolicy: &how, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rev}}
	err := l.c.Delete(ctx, on.GroupResource, o.GetNamespace(), o.GetName(), options)
	if !apierrors.IsConflict(err) {
		return control.IgnoreNotFound(err)
	}
	now, gerr := l.c.Get(ctx, on.GroupResource, o.GetNamespace(), o.GetName(), "")
	if gerr != nil {
		return control.IgnoreNotFound(gerr)
	}
	if now.GetUID() != uid || now.GetDeletionTimestamp() != nil {
		return nil
	}
	if !equality.Semantic.DeepEqual(now.GetOwnerReferences(), o.GetOwnerReferences()) {
		return err
	}
	options.Preconditions.ResourceVersion = nil
	return control.IgnoreNotFound(l.c.Delete(ctx, on.GroupResource, o.GetNamespace(), o.GetName(), options))
}

// copyOf returns a complete copy of an object for a write. The write conflicts if the object has changed meanwhile.
func (l *reconciler) copyOf(it item) kind.Object {
	o := it.Object
	if v := l.c.View(it.GroupResource); v != nil {
		if whole, found := client.WholeObject(v, o.GetNamespace(), o.GetName()); found && whole.GetUID() == o.GetUID() {
			o = whole
		}
	}
	next := o.DeepCopyObject().(kind.Object)
	next.SetResourceVersion(it.GetResourceVersion())
	return next
}

// unlink removes the references to some owners from an object.
func (l *reconciler) unlink(ctx context.Context, it item, owners ...types.UID) error {
	next := l.copyOf(it)
	next.SetOwnerReferences(slices.DeleteFunc(next.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return slices.Contains(owners, r.UID) }))
	_, err := l.c.Update(ctx, it.GroupResource, next, "")
	return control.IgnoreNotFound(err)
}

// dependents returns the objects that name an owner, including those of a custom resource whose first object was stored just
// now and which has no view yet: an owner that waits for its dependents, or orphans them, must not overlook any.
func (l *reconciler) dependents(ctx context.Context, uid types.UID) []item {
	out := l.g.dependents(l.c, uid)
	for _, r := range l.g.table.Load().all {
		if !r.Custom || l.c.View(r.GroupResource) != nil || !l.g.occupied(r) {
			continue
		}
		v, err := l.c.Open(ctx, r.GroupResource)
		if err != nil { // its definition is being deleted, or it cannot be read at all
			continue
		}
		for o := range v.By(client.ByOwner(), string(uid)) {
			out = append(out, item{r, o})
		}
	}
	return out
}

// deleteDependents deletes the dependents of an owner in foreground deletion, and removes the owner's finalizer when none blocks it.
func (l *reconciler) deleteDependents(ctx context.Context, it item) error {
	dependents := l.dependents(ctx, it.GetUID())
	if !slices.ContainsFunc(dependents, func(d item) bool { return blocksOwner(d, it.GetUID()) }) {
		if err := l.forEach(ctx, dependents, l.reconcileDependent); err != nil {
			return err
		}
		return l.removeFinalizer(ctx, it, metav1.FinalizerDeleteDependents)
	}
	return l.forEach(ctx, dependents, l.reconcileDependent)
}

// orphanDependents removes the references to an owner from its dependents, and then the owner's finalizer. A dependent that was
// overlooked would be deleted after its owner, so the views must first show everything that is stored.
func (l *reconciler) orphanDependents(ctx context.Context, it item) error {
	var all []item
	for _, r := range l.g.table.Load().all {
		all = append(all, item{Resource: r})
	}
	err := l.forEach(ctx, all, func(ctx context.Context, r item) error {
		if v := l.c.View(r.GroupResource); v != nil {
			return v.Reach(ctx, 0)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := l.forEach(ctx, l.dependents(ctx, it.GetUID()),
		func(ctx context.Context, d item) error { return l.unlink(ctx, d, it.GetUID()) }); err != nil {
		return err
	}
	return l.removeFinalizer(ctx, it, metav1.FinalizerOrphanDependents)
}

// removeFinalizer removes a finalizer from an owner.
func (l *reconciler) removeFinalizer(ctx context.Context, it item, finalizer string) error {
	next := l.copyOf(it)
	next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == finalizer }))
	_, err := l.c.Update(ctx, it.GroupResource, next, "")
	return control.IgnoreNotFound(err)
}
