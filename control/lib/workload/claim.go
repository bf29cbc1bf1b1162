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

// Claimant is an owner that claims objects by a selector: it adopts matching objects that have no controller, and releases
// objects that it controls and that no longer match.
type Claimant[T kind.Object] struct {
	Owner kind.Object
	// Kind and On are the kind and resource of the owner.
	Kind schema.GroupVersionKind
	On   schema.GroupResource
	// Of is the resource of the objects that it claims.
	Of       schema.GroupResource
	Selector labels.Selector
	// Match, if not nil, must also hold for an object to be claimed.
	Match func(T) bool
	// Finalizers are added to adopted objects and removed from released ones.
	Finalizers []string
}

// Claims are the objects that a claimant owns, should adopt, and should release.
type Claims[T kind.Object] struct{ Owned, Adopt, Release []T }

// Sort divides objects into those that the claimant owns, should adopt, and should release. Objects with another controller
// are in none of them, and an owner that is being deleted adopts and releases nothing.
func (cl *Claimant[T]) Sort(objects iter.Seq[T]) Claims[T] {
	var out Claims[T]
	ownerDeleted := cl.Owner.GetDeletionTimestamp() != nil
	for o := range objects {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref != nil && ref.UID != cl.Owner.GetUID() {
			continue
		}
		matches := cl.Selector.Matches(labels.Set(o.GetLabels())) && (cl.Match == nil || cl.Match(o))
		switch {
		case ref != nil && matches:
			out.Owned = append(out.Owned, o)
		case ownerDeleted:
		case ref != nil:
			out.Release = append(out.Release, o)
		case matches && o.GetDeletionTimestamp() == nil && o.GetNamespace() == cl.Owner.GetNamespace():
			out.Adopt = append(out.Adopt, o)
		}
	}
	return out
}

// Claim adopts and releases objects, and returns those that the owner has afterwards. Before the first adoption it asks the
// server whether the owner still exists: objects that are adopted by a deleted owner would be garbage collected. The
// controller must declare get on On and update on Of.
func (cl *Claimant[T]) Claim(ctx context.Context, c *control.Cluster, objects iter.Seq[T]) ([]T, error) {
	claims := cl.Sort(objects)
	owned := claims.Owned
	var errs []error
	for _, o := range claims.Release {
		errs = append(errs, cl.write(ctx, c, cl.released(o), nil))
	}
	if len(claims.Adopt) > 0 {
		if err := cl.checkOwner(ctx, c); err != nil {
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

// checkOwner returns an error if the server says that the owner was deleted, or is being deleted.
func (cl *Claimant[T]) checkOwner(ctx context.Context, c *control.Cluster) error {
	namespace, name := cl.Owner.GetNamespace(), cl.Owner.GetName()
	stored, err := c.Get(ctx, cl.On, namespace, name, "")
	switch {
	case err != nil:
		return fmt.Errorf("can't recheck DeletionTimestamp: %w", err)
	case stored.GetUID() != cl.Owner.GetUID():
		return fmt.Errorf("original %v %v/%v is gone: got uid %v, wanted %v", cl.Kind.Kind, namespace, name, stored.GetUID(),
			cl.Owner.GetUID())
	case stored.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%v/%v has just been deleted at %v", namespace, name, stored.GetDeletionTimestamp())
	}
	return nil
}

// write stores an adopted or released object, and appends it to into. It has the resourceVersion of the view, so that the
// server rejects a claim that is based on an old state. It is no error if the object was deleted.
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

// adopted returns a copy of an object that has the owner as its controller.
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

// released returns a copy of an object without the owner reference and the finalizers of the owner.
func (cl *Claimant[T]) released(o T) kind.Object {
	out := o.DeepCopyObject().(kind.Object)
	out.SetOwnerReferences(slices.DeleteFunc(out.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return r.UID == cl.Owner.GetUID() }))
	out.SetFinalizers(slices.DeleteFunc(out.GetFinalizers(), func(f string) bool { return slices.Contains(cl.Finalizers, f) }))
	return out
}

// ByOrphanNamespace indexes objects without a controller by their namespace.
func ByOrphanNamespace() client.Index {
	return client.Index{Name: "orphans", Values: func(o kind.Object) []string {
		if metav1.GetControllerOfNoCopy(o) != nil {
			return nil
		}
		return []string{o.GetNamespace()}
	}}
}

// Candidates yields the objects that an owner may claim: those it controls, and those of its namespace without a controller.
func Candidates[T kind.Object](c *control.Cluster, on schema.GroupResource, owner kind.Object) iter.Seq[T] {
	return func(yield func(T) bool) {
		for o := range control.Owned[T](c, on, owner) {
			if !yield(o) {
				return
			}
		}
		for o := range control.By[T](c, on, ByOrphanNamespace(), owner.GetNamespace()) {
			if !yield(o) {
				return
			}
		}
	}
}
