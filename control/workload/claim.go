package workload

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
)

// Claimant is an object that owns others by a selector. It adopts those that match and have no controller, and releases
// those of its own that match no more.
type Claimant[T kind.Object] struct {
	Owner kind.Object
	// Kind and On are what the owner is.
	Kind schema.GroupVersionKind
	On   schema.GroupResource
	// Of is the resource of what it owns.
	Of       schema.GroupResource
	Selector labels.Selector
	// Match, if there, must hold too for an object to be the owner's.
	Match func(T) bool
	// Finalizers are put on what is adopted and taken from what is released.
	Finalizers []string
}

// Claims is what a claimant finds among objects.
type Claims[T kind.Object] struct{ Owned, Adopt, Release []T }

// Sort tells what is the claimant's, what it should adopt, and what to release. It leaves alone what others
// control, and changes nothing for an owner that is being deleted.
func (cl *Claimant[T]) Sort(objects iter.Seq[T]) Claims[T] {
	var out Claims[T]
	leaving := cl.Owner.GetDeletionTimestamp() != nil
	for o := range objects {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref != nil && ref.UID != cl.Owner.GetUID() {
			continue
		}
		matches := cl.Selector.Matches(labels.Set(o.GetLabels())) && (cl.Match == nil || cl.Match(o))
		switch {
		case ref != nil && matches:
			out.Owned = append(out.Owned, o)
		case leaving:
		case ref != nil:
			out.Release = append(out.Release, o)
		case matches && o.GetDeletionTimestamp() == nil && o.GetNamespace() == cl.Owner.GetNamespace():
			out.Adopt = append(out.Adopt, o)
		}
	}
	return out
}

// Claim sorts objects, adopts and releases, and returns what the owner has now. Before the first adoption it makes sure
// that the owner is still there and stays: one that was deleted meanwhile must not take along what it does not own yet.
// The owner's controller declares get on On and update on Of.
func (cl *Claimant[T]) Claim(ctx context.Context, c *control.Cluster, objects iter.Seq[T]) ([]T, error) {
	claims := cl.Sort(objects)
	owned := claims.Owned
	var errs []error
	for _, o := range claims.Release {
		errs = append(errs, cl.write(ctx, c, cl.released(o), nil))
	}
	if len(claims.Adopt) > 0 {
		if err := cl.stays(ctx, c); err != nil {
			o := claims.Adopt[0]
			errs = append(errs, fmt.Errorf("can't adopt %s %v/%v (%v): %w", cl.Of.Resource, o.GetNamespace(), o.GetName(), o.GetUID(), err))
			return owned, errors.Join(errs...)
		}
	}
	for _, o := range claims.Adopt {
		errs = append(errs, cl.write(ctx, c, cl.adopted(o), &owned))
	}
	return owned, errors.Join(errs...)
}

// stays asks the server whether the owner lives.
func (cl *Claimant[T]) stays(ctx context.Context, c *control.Cluster) error {
	namespace, name := cl.Owner.GetNamespace(), cl.Owner.GetName()
	fresh, err := c.Get(ctx, cl.On, namespace, name, "")
	switch {
	case err != nil:
		return fmt.Errorf("can't recheck DeletionTimestamp: %w", err)
	case fresh.GetUID() != cl.Owner.GetUID():
		return fmt.Errorf("original %v %v/%v is gone: got uid %v, wanted %v", cl.Kind.Kind, namespace, name, fresh.GetUID(), cl.Owner.GetUID())
	case fresh.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%v/%v has just been deleted at %v", namespace, name, fresh.GetDeletionTimestamp())
	}
	return nil
}

// write stores a claimed object. It carries the version the view has, so that nothing is claimed on old knowledge. One
// that is gone needs nothing any more.
func (cl *Claimant[T]) write(ctx context.Context, c *control.Cluster, o kind.Object, into *[]T) error {
	now, err := c.Update(ctx, cl.Of, o, "")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if t, ok := now.(T); ok && err == nil && into != nil {
		*into = append(*into, t)
	}
	return err
}

// adopted is an object with the owner as its controller.
func (cl *Claimant[T]) adopted(o T) kind.Object {
	out := o.DeepCopyObject().(kind.Object)
	refs := slices.DeleteFunc(out.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == cl.Owner.GetUID() })
	out.SetOwnerReferences(append(refs, *metav1.NewControllerRef(cl.Owner, cl.Kind)))
	have := out.GetFinalizers()
	for _, f := range cl.Finalizers {
		if !slices.Contains(have, f) {
			have = append(have, f)
		}
	}
	out.SetFinalizers(have)
	return out
}

// released is an object without the owner.
func (cl *Claimant[T]) released(o T) kind.Object {
	out := o.DeepCopyObject().(kind.Object)
	out.SetOwnerReferences(slices.DeleteFunc(out.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == cl.Owner.GetUID() }))
	out.SetFinalizers(slices.DeleteFunc(out.GetFinalizers(), func(f string) bool { return slices.Contains(cl.Finalizers, f) }))
	return out
}

// Orphans finds objects that have no controller by their namespace.
func Orphans() client.Index {
	return client.Index{Name: "orphans", Of: func(o kind.Object) []string {
		if metav1.GetControllerOfNoCopy(o) != nil {
			return nil
		}
		return []string{o.GetNamespace()}
	}}
}

// Candidates yields what an owner may claim: what it controls, and what nobody in its namespace controls.
func Candidates[T kind.Object](c *control.Cluster, on schema.GroupResource, owner kind.Object) iter.Seq[T] {
	return func(yield func(T) bool) {
		for o := range control.Owned[T](c, on, owner) {
			if !yield(o) {
				return
			}
		}
		for o := range control.By[T](c, on, Orphans(), owner.GetNamespace()) {
			if !yield(o) {
				return
			}
		}
	}
}
