// Package deletion works out what a deletion does to an object: preconditions, grace period, finalizers, and whether
// anything still holds the object. Its functions change only what they are given.
package deletion

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// CheckPreconditions returns an error when the object does not have the UID or the resourceVersion that the client
// requires.
func CheckPreconditions(def *kind.Def, p *metav1.Preconditions, obj kind.Object) error {
	if p == nil {
		return nil
	}
	if text := def.Deletion.PreconditionText; text != "" {
		return checkResourcePreconditions(def, text, p, obj)
	}
	gr := schema.GroupResource{Group: def.Group, Resource: def.Kind}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// checkResourcePreconditions does what CheckPreconditions does, with the error text that upstream has for the kinds
// with a deletion of their own.
func checkResourcePreconditions(def *kind.Def, text string, p *metav1.Preconditions, obj kind.Object) error {
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(def.Resource(), obj.GetName(),
			fmt.Errorf("%s: UID in precondition: %v, UID in object meta: %v", text, *p.UID, obj.GetUID()))
	}
	if rv := p.ResourceVersion; rv != nil && *rv != obj.GetResourceVersion() {
		return apierrors.NewConflict(def.Resource(), obj.GetName(), fmt.Errorf("%s: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", text, *rv, obj.GetResourceVersion()))
	}
	return nil
}

// Begin marks an object as being deleted: it sets the deletion timestamp, the grace period, and the finalizers for
// dependents. It returns false when a deletion has begun already that these options do not shorten.
func Begin(def *kind.Def, obj kind.Object, options *metav1.DeleteOptions, now time.Time) bool {
	if g := options.GracePeriodSeconds; g != nil && *g < 0 {
		options.GracePeriodSeconds = new(int64(1))
	}
	graceful := def.Deletion.Grace != nil
	if graceful {
		var pending bool
		if graceful, pending = setGracePeriod(def, obj, options, now); pending {
			return false
		}
	}
	if !def.Deletion.HasNoDependents {
		obj.SetFinalizers(finalizers(def, obj, options))
	}
	first := obj.GetDeletionTimestamp() == nil
	if graceful {
		return true
	}
	// Without a grace period, only finalizers and the like decide how long the object stays.
	if first && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if at := obj.GetDeletionTimestamp(); at == nil || at.After(now) {
		obj.SetDeletionTimestamp(new(metav1.NewTime(now.Truncate(time.Second))))
	}
	obj.SetDeletionGracePeriodSeconds(new(int64(0)))
	if def.Deletion.Begin != nil {
		def.Deletion.Begin(obj)
	}
	return true
}

// setGracePeriod sets the deletion timestamp and the grace period of an object whose kind has one. pending reports that
// a deletion has begun already that these options do not shorten.
func setGracePeriod(def *kind.Def, obj kind.Object, options *metav1.DeleteOptions, now time.Time) (graceful, pending bool) {
	if at := obj.GetDeletionTimestamp(); at != nil {
		left := obj.GetDeletionGracePeriodSeconds()
		if left == nil || *left == 0 {
			return false, false
		}
		if options.GracePeriodSeconds == nil || *options.GracePeriodSeconds >= *left {
			return false, true
		}
		wanted := *options.GracePeriodSeconds
		moved := metav1.NewTime(at.Add(time.Duration(wanted-*left) * time.Second))
		if moved.Time.Before(now) {
			moved = metav1.NewTime(now.Truncate(time.Second))
			if wanted != 0 {
				wanted = 1
			}
		}
		obj.SetDeletionTimestamp(&moved)
		obj.SetDeletionGracePeriodSeconds(&wanted)
		return true, false
	}
	seconds := def.Deletion.Grace(obj, options)
	obj.SetDeletionTimestamp(new(metav1.NewTime(now.Add(time.Duration(seconds) * time.Second).Truncate(time.Second))))
	obj.SetDeletionGracePeriodSeconds(&seconds)
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false
}

// finalizers returns the finalizers of an object that is deleted with these options. For the propagation policies
// Orphan and Foreground there is one that makes the garbage collector handle the dependents before the object is
// deleted.
func finalizers(def *kind.Def, obj kind.Object, options *metav1.DeleteOptions) []string {
	policy := def.Deletion.Propagation
	for _, f := range obj.GetFinalizers() {
		switch f {
		case metav1.FinalizerOrphanDependents:
			policy = metav1.DeletePropagationOrphan
		case metav1.FinalizerDeleteDependents:
			policy = metav1.DeletePropagationForeground
		}
	}
	if options.PropagationPolicy != nil {
		policy = *options.PropagationPolicy
	}
	if o := options.OrphanDependents; o != nil {
		if policy = metav1.DeletePropagationBackground; *o {
			policy = metav1.DeletePropagationOrphan
		}
	}
	out := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch policy {
	case metav1.DeletePropagationOrphan:
		out = append(out, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	return out
}

// IsFinished says that the deletion of an object has begun and nothing holds the object any more: no finalizers, no
// grace period, nothing of its kind.
func IsFinished(def *kind.Def, obj kind.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	if g := obj.GetDeletionGracePeriodSeconds(); g != nil && *g != 0 {
		return false
	}
	return def.Deletion.IsHeld == nil || !def.Deletion.IsHeld(obj)
}
