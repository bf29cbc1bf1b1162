// Package volumeprotection removes the finalizers of volumes, claims and volume attributes classes that are being deleted, once
// they are not used any more, and writes a condition on bound claims that no Pod uses. The finalizers are added when the
// objects are created, in hop 4.
package volumeprotection

import (
	"context"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/podrefs"
)

func core(resource string) schema.GroupResource { return schema.GroupResource{Resource: resource} }

func classes() schema.GroupResource {
	return schema.GroupResource{Group: storagev1.GroupName, Resource: "volumeattributesclasses"}
}

// Controllers returns the three controllers.
func Controllers() []control.Controller {
	return []control.Controller{claimController(), volumeController(), attributesClassController()}
}

// releaseUnused removes a finalizer from an object that is being deleted, unless it is used.
func releaseUnused(gr schema.GroupResource, finalizer string, used func(*control.Cluster, kind.Object) bool) func(context.Context,
	*control.Cluster, control.Key) (time.Duration, error) {
	return func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
		o, found := c.View(gr).Get(k.Namespace, k.Name)
		if !found || o.GetDeletionTimestamp() == nil || !slices.Contains(o.GetFinalizers(), finalizer) || used(c, o) {
			return 0, nil
		}
		next := o.DeepCopyObject().(kind.Object)
		next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == finalizer }))
		_, err := c.Update(ctx, gr, next, "")
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return 0, err
	}
}

func claimController() control.Controller {
	pods := core("pods")
	releaseClaim := releaseUnused(core("persistentvolumeclaims"), "kubernetes.io/pvc-protection",
		func(c *control.Cluster, o kind.Object) bool {
			for p := range control.By[*corev1.Pod](c, pods, client.ByClaim(), o.GetNamespace()+"/"+o.GetName()) {
				if isClaimInUse(p, o.GetName()) {
					return true
				}
			}
			return false
		})
	return control.Controller{
		Name: "pvc-protection-controller", For: core("persistentvolumeclaims"),
		Writes: []control.Write{{On: core("persistentvolumeclaims"), Do: "update update/status"}},
		Triggers: []control.Trigger{{On: pods, Keys: func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
			return func(yield func(control.Key) bool) {
				for _, name := range podrefs.VolumeClaims(o.(*corev1.Pod)) {
					if !yield(control.Key{Namespace: o.GetNamespace(), Name: name}) {
						return
					}
				}
			}
		}}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			if err := updateUnusedCondition(ctx, c, k); err != nil {
				return 0, err
			}
			return releaseClaim(ctx, c, k)
		},
	}
}

// isClaimInUse reports whether a pod that has a node and is not terminal uses a claim.
func isClaimInUse(p *corev1.Pod, claim string) bool {
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.Contains(podrefs.VolumeClaims(p), claim)
}

func volumeController() control.Controller {
	return control.Controller{
		Name: "pv-protection-controller", For: core("persistentvolumes"),
		Writes: []control.Write{{On: core("persistentvolumes"), Do: "update"}},
		Reconcile: releaseUnused(core("persistentvolumes"), "kubernetes.io/pv-protection", func(_ *control.Cluster, o kind.Object) bool {
			return o.(*corev1.PersistentVolume).Status.Phase == corev1.VolumeBound
		}),
	}
}

func attributesClassController() control.Controller {
	ofClaim := func(o kind.Object) []*string {
		c := o.(*corev1.PersistentVolumeClaim)
		return []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName}
	}
	ofVolume := func(o kind.Object) []*string {
		return []*string{o.(*corev1.PersistentVolume).Spec.VolumeAttributesClassName}
	}
	wake := func(names func(kind.Object) []*string) func(*control.Cluster, kind.Object) iter.Seq[control.Key] {
		return func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
			return func(yield func(control.Key) bool) {
				for _, n := range names(o) {
					if n != nil && *n != "" && !yield(control.Key{Name: *n}) {
						return
					}
				}
			}
		}
	}
	return control.Controller{
		Name: "volumeattributesclass-protection-controller", For: classes(),
		Triggers: []control.Trigger{{On: core("persistentvolumeclaims"), Keys: wake(ofClaim)},
			{On: core("persistentvolumes"), Keys: wake(ofVolume)}},
		Writes: []control.Write{{On: classes(), Do: "update"}},
		Reconcile: releaseUnused(classes(), "kubernetes.io/vac-protection", func(c *control.Cluster, o kind.Object) bool {
			for _, use := range []struct {
				gr    schema.GroupResource
				names func(kind.Object) []*string
			}{{core("persistentvolumeclaims"), ofClaim}, {core("persistentvolumes"), ofVolume}} {
				for x := range c.View(use.gr).List("") {
					for _, n := range use.names(x) {
						if n != nil && *n == o.GetName() {
							return true
						}
					}
				}
			}
			return false
		}),
	}
}
