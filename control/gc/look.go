package gc

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
	"proa.dev/kinds/kind"
)

// item is an object with its resource.
type item struct {
	Resource
	kind.Object
}

// look is the work on one key.
type look struct {
	g *Collector
	c *control.Cluster

	mu     sync.Mutex         // guards what follows
	absent map[string]bool    // owners that the store does not have; what had a UID never comes back
	told   map[types.UID]bool // owners in other namespaces: whether there are such
}

// hands is how many objects one look works on at a time.
const hands = 16

// each does something to many objects at once.
func (l *look) each(ctx context.Context, items []item, do func(context.Context, item) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(items))
	seats := make(chan struct{}, hands)
	for i, it := range items {
		seats <- struct{}{}
		wg.Go(func() {
			defer func() { <-seats }()
			errs[i] = do(ctx, it)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// one looks at an object that is there.
func (l *look) one(ctx context.Context, it item) error {
	switch {
	case orphans(it):
		return l.orphan(ctx, it)
	case waits(it):
		return l.wait(ctx, it)
	}
	return l.judge(ctx, it)
}

// namespace looks at all objects of a namespace, and of the cluster along with one of them.
func (l *look) namespace(ctx context.Context, name string) error {
	var items []item
	for _, r := range l.g.table.Load().all {
		if v := l.c.View(r.GroupResource); v != nil && (r.Namespaced || name == metav1.NamespaceSystem) {
			in := name
			if !r.Namespaced {
				in = ""
			}
			for o := range v.List(in) {
				if orphans(o) || waits(o) || l.g.suspect(l.c, o) {
					items = append(items, item{r, o})
				}
			}
		}
	}
	return l.each(ctx, items, l.one)
}

// judge decides about an object by its owners, and carries it out.
func (l *look) judge(ctx context.Context, it item) error {
	refs := it.GetOwnerReferences()
	if it.GetDeletionTimestamp() != nil || len(refs) == 0 {
		return nil
	}
	stand := make([]standing, len(refs))
	for i := range refs {
		var err error
		if stand[i], err = l.stand(ctx, it, refs[i]); err != nil {
			return err
		}
	}
	v := decide(it, stand, facts{
		owns: func() bool { return l.g.owns(l.c, it.GetUID()) },
		loops: func() bool {
			return slices.ContainsFunc(l.g.dependents(l.c, it.GetUID()), func(d item) bool { return waits(d) })
		},
	})
	return l.apply(ctx, it, v)
}

// stand finds out where a reference leads. Views may lag, so an owner that they do not have is looked for in the store.
func (l *look) stand(ctx context.Context, it item, ref metav1.OwnerReference) (standing, error) {
	on, namespace, ok := l.g.find(it, ref)
	if !ok {
		if on.Namespaced {
			l.tell(it, on, ref)
			return unknown, nil
		}
		return l.unserved(ref), nil
	}
	v := l.c.View(on.GroupResource)
	var owner kind.Object
	found := false
	switch {
	case v != nil:
		owner, found = v.Get(namespace, ref.Name)
	case l.g.occupied(on):
		return l.unserved(ref), nil
	}
	if !found || owner.GetUID() != ref.UID {
		key := keyOf(on.GroupResource, namespace, ref.Name, ref.UID)
		there, err := l.stored(ctx, on, key)
		if err != nil {
			return 0, err
		}
		if there != nil {
			owner = there
		} else {
			l.tell(it, on, ref)
			return dangling, nil
		}
	}
	if waits(owner) {
		return waiting, nil
	}
	return solid, nil
}

// unserved is the standing of a reference to an owner of a kind that is not served: nobody can tell, unless the owner was seen to be
// deleted. A definition goes right after the last of its objects.
func (l *look) unserved(ref metav1.OwnerReference) standing {
	if _, gone := l.g.gone.Load(ref.UID); gone {
		return dangling
	}
	return unknown
}

// stored looks for an owner in the store and returns it, or nil.
func (l *look) stored(ctx context.Context, on Resource, k control.Key) (kind.Object, error) {
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

// tell says that an owner is there, but not where a reference to it can lead.
func (l *look) tell(it item, on Resource, ref metav1.OwnerReference) {
	if !on.Namespaced || !l.elsewhere(on, ref.UID) {
		return
	}
	l.c.Event(it.Object, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		ref.APIVersion, ref.Kind, it.GetNamespace(), ref.Name, ref.UID, it.GetNamespace())
}

// elsewhere says that an object is in some namespace.
func (l *look) elsewhere(on Resource, uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if there, known := l.told[uid]; known {
		return there
	}
	if v := l.c.View(on.GroupResource); v != nil {
		for o := range v.List("") {
			if o.GetUID() == uid {
				l.told[uid] = true
				return true
			}
		}
	}
	l.told[uid] = false
	return false
}

func (l *look) apply(ctx context.Context, it item, v verdict) error {
	o := it.Object
	if len(v.unlink) > 0 {
		return l.unlink(ctx, it, v.unlink...)
	}
	if v.remove == "" {
		return nil
	}
	if v.unblock && slices.ContainsFunc(o.GetOwnerReferences(), blocks) {
		next := l.copyOf(it)
		refs := next.GetOwnerReferences()
		for i := range refs {
			if blocks(refs[i]) {
				refs[i].BlockOwnerDeletion = new(false)
			}
		}
		next.SetOwnerReferences(refs)
		updated, err := l.c.Update(ctx, it.GroupResource, next, "")
		if err != nil {
			return control.Gone(err)
		}
		o = updated
	}
	return l.remove(ctx, it.Resource, o, v.remove)
}

// remove deletes an object, if it still is what was judged. When something else of it has changed meanwhile, and again and
// again, that does not save it.
func (l *look) remove(ctx context.Context, on Resource, o kind.Object, how metav1.DeletionPropagation) error {
	uid, rev := o.GetUID(), o.GetResourceVersion()
	options := metav1.DeleteOptions{PropagationPolicy: &how, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rev}}
	err := l.c.Delete(ctx, on.GroupResource, o.GetNamespace(), o.GetName(), options)
	if !apierrors.IsConflict(err) {
		return control.Gone(err)
	}
	now, gerr := l.c.Get(ctx, on.GroupResource, o.GetNamespace(), o.GetName(), "")
	if gerr != nil {
		return control.Gone(gerr)
	}
	if now.GetUID() != uid || now.GetDeletionTimestamp() != nil {
		return nil
	}
	if !equality.Semantic.DeepEqual(now.GetOwnerReferences(), o.GetOwnerReferences()) {
		return err
	}
	options.Preconditions.ResourceVersion = nil
	return control.Gone(l.c.Delete(ctx, on.GroupResource, o.GetNamespace(), o.GetName(), options))
}

// copyOf is an object to be changed and written, with all its parts. If it is another by now, the write is a conflict.
func (l *look) copyOf(it item) kind.Object {
	o := it.Object
	if v := l.c.View(it.GroupResource); v != nil {
		if whole, found := client.Whole(v, o.GetNamespace(), o.GetName()); found && whole.GetUID() == o.GetUID() {
			o = whole
		}
	}
	next := o.DeepCopyObject().(kind.Object)
	next.SetResourceVersion(it.GetResourceVersion())
	return next
}

// unlink makes an object name some owners no longer.
func (l *look) unlink(ctx context.Context, it item, owners ...types.UID) error {
	next := l.copyOf(it)
	next.SetOwnerReferences(slices.DeleteFunc(next.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return slices.Contains(owners, r.UID) }))
	_, err := l.c.Update(ctx, it.GroupResource, next, "")
	return control.Gone(err)
}

// dependents are the objects that name an owner, also those of a resource whose first object was stored just now and which is not followed
// yet: an owner that waits for them must not go before them, and one that leaves them must not overlook them.
func (l *look) dependents(ctx context.Context, uid types.UID) []item {
	out := l.g.dependents(l.c, uid)
	for _, r := range l.g.table.Load().all {
		if !r.Custom || l.c.View(r.GroupResource) != nil || !l.g.occupied(r) {
			continue
		}
		v, err := l.c.Open(ctx, r.GroupResource)
		if err != nil { // its definition goes, or it cannot be read: then nobody can
			continue
		}
		for o := range v.By(client.ByOwner(), string(uid)) {
			out = append(out, item{r, o})
		}
	}
	return out
}

// wait works on an owner that waits for its dependents: they are deleted, and when none blocks it any more it is let go.
func (l *look) wait(ctx context.Context, it item) error {
	dependents := l.dependents(ctx, it.GetUID())
	if !slices.ContainsFunc(dependents, func(d item) bool { return blocking(d, it.GetUID()) }) {
		if err := l.each(ctx, dependents, l.judge); err != nil {
			return err
		}
		return l.release(ctx, it, metav1.FinalizerDeleteDependents)
	}
	return l.each(ctx, dependents, l.judge)
}

// orphan works on an owner that leaves its dependents behind. None may be overlooked: it would be deleted as soon as the
// owner is gone. So the views must first hold everything.
func (l *look) orphan(ctx context.Context, it item) error {
	var all []item
	for _, r := range l.g.table.Load().all {
		all = append(all, item{Resource: r})
	}
	err := l.each(ctx, all, func(ctx context.Context, r item) error {
		if v := l.c.View(r.GroupResource); v != nil {
			return v.Reach(ctx, 0)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := l.each(ctx, l.dependents(ctx, it.GetUID()), func(ctx context.Context, d item) error { return l.unlink(ctx, d, it.GetUID()) }); err != nil {
		return err
	}
	return l.release(ctx, it, metav1.FinalizerOrphanDependents)
}

// release takes a finalizer from an owner.
func (l *look) release(ctx context.Context, it item, finalizer string) error {
	next := l.copyOf(it)
	next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == finalizer }))
	_, err := l.c.Update(ctx, it.GroupResource, next, "")
	return control.Gone(err)
}
