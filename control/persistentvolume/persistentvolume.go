// Package persistentvolume binds PersistentVolumeClaims to PersistentVolumes: it finds a volume for a claim or asks a
// provisioner for one, makes the two refer to each other, keeps their phases, and reclaims volumes whose claims were deleted.
//
// External provisioners create and delete volumes. They communicate with this package by annotations.
package persistentvolume

import (
	"iter"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/podrefs"
)

// Config has the settings of the controllers.
type Config struct {
	// Remove removes the folder of a hostPath volume with the policy Delete; it is called for paths below /tmp only. nil stands
	// for os.RemoveAll.
	Remove func(path string) error
}

// binder is the state that the two controllers share.
type binder struct {
	Config
	events eventFilter

	mu       sync.Mutex      // guards what follows
	reserved map[string]bool // volumes that a worker is about to bind
	// failed has the times at which volumes could not be recycled, by name.
	failed map[string]time.Time
}

// Controllers returns the controller of claims and the controller of volumes.
func Controllers(config Config) []control.Controller {
	if config.Remove == nil {
		config.Remove = os.RemoveAll
	}
	b := &binder{Config: config, reserved: map[string]bool{}, failed: map[string]time.Time{}}
	writes := []control.Write{
		{On: gr.PersistentVolumes, Do: "get update update/status delete"},
		{On: gr.PersistentVolumeClaims, Do: "get update update/status"},
		{On: gr.StorageClasses, Do: "get"},
		{On: gr.Pods, Do: "create delete"},
	}
	return []control.Controller{{
		Name: "persistent-volume-binder", Component: "persistentvolume-controller", For: gr.PersistentVolumeClaims, Workers: 8,
		Triggers: []control.Trigger{
			{On: gr.PersistentVolumes, Keys: claimsOfVolume},
			{On: gr.StorageClasses, Keys: claimsOfClass},
			{On: gr.Pods, Keys: claimsOfPod, When: changesNode},
		},
		Writes: writes, Reconcile: b.reconcileClaim,
	}, {
		Name: "persistent-volume-binder", Component: "persistentvolume-controller", For: gr.PersistentVolumes, Workers: 8,
		Triggers: []control.Trigger{
			{On: gr.PersistentVolumeClaims, Keys: volumesOfClaim},
			{On: gr.Pods, Keys: volumesOfPod, When: func(old, now kind.Object) bool {
				return old == nil || now == nil || workload.IsTerminal(old.(*corev1.Pod)) != workload.IsTerminal(now.(*corev1.Pod))
			}},
		},
		Writes: writes, Reconcile: b.reconcileVolume,
	}}
}

func keys(list ...control.Key) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for _, k := range list {
			if !yield(k) {
				return
			}
		}
	}
}

// claimsOfVolume yields the claims that a change of a volume may concern: the one in its claimRef, those that name it and, if
// it is free, those it fits.
func claimsOfVolume(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		v := o.(*corev1.PersistentVolume)
		if ref := v.Spec.ClaimRef; ref != nil && !yield(control.Key{Namespace: ref.Namespace, Name: ref.Name}) {
			return
		}
		for claim := range c.View(gr.PersistentVolumeClaims).By(byVolume(), v.Name) {
			if !yield(control.KeyOf(claim)) {
				return
			}
		}
		if v.Spec.ClaimRef != nil || v.Status.Phase != corev1.VolumeAvailable {
			return
		}
		for claim := range control.By[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, unboundByClass(), volumeClass(v)) {
			if fit, err := bestVolume(claim, []*corev1.PersistentVolume{v}, false); err == nil && fit != nil &&
				!yield(control.KeyOf(claim)) {
				return
			}
		}
	}
}

// claimsOfClass yields the claims without a volume that name a class, and those that name none, for which it may be the
// default.
func claimsOfClass(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for _, class := range []string{o.GetName(), ""} {
			for claim := range c.View(gr.PersistentVolumeClaims).By(unboundByClass(), class) {
				if !yield(control.KeyOf(claim)) {
					return
				}
			}
		}
	}
}

// claimsOfPod yields the claims without a volume that a Pod uses.
func claimsOfPod(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for _, name := range podrefs.VolumeClaims(o.(*corev1.Pod)) {
			claim, found := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, o.GetNamespace(), name)
			if found && claim.Spec.VolumeName == "" && !yield(control.KeyOf(claim)) {
				return
			}
		}
	}
}

// changesNode ignores changes of a Pod that do not change its node.
func changesNode(old, now kind.Object) bool {
	if old == nil || now == nil {
		return true
	}
	return old.(*corev1.Pod).Spec.NodeName != now.(*corev1.Pod).Spec.NodeName
}

// volumesOfClaim yields the volumes that a claim names, or whose claimRef names it.
func volumesOfClaim(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		claim := o.(*corev1.PersistentVolumeClaim)
		if claim.Spec.VolumeName != "" && !yield(control.Key{Name: claim.Spec.VolumeName}) {
			return
		}
		for v := range c.View(gr.PersistentVolumes).By(byClaimRef(), claim.Namespace+"/"+claim.Name) {
			if !yield(control.KeyOf(v)) {
				return
			}
		}
	}
}

// volumesOfPod yields the volume of a recycler Pod or, for other Pods, the volumes with the policy Recycle that they use.
func volumesOfPod(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	if name, ok := strings.CutPrefix(o.GetName(), recyclerPrefix); ok && o.GetNamespace() == metav1.NamespaceDefault {
		return keys(control.Key{Name: name})
	}
	return func(yield func(control.Key) bool) {
		for _, name := range podrefs.VolumeClaims(o.(*corev1.Pod)) {
			for v := range control.By[*corev1.PersistentVolume](c, gr.PersistentVolumes, byClaimRef(), o.GetNamespace()+"/"+name) {
				if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle && !yield(control.KeyOf(v)) {
					return
				}
			}
		}
	}
}

// byClaimRef indexes volumes by the claims in their claimRefs.
func byClaimRef() client.Index {
	return client.Index{Name: "claimRef", Values: func(o kind.Object) []string {
		if ref := o.(*corev1.PersistentVolume).Spec.ClaimRef; ref != nil {
			return []string{ref.Namespace + "/" + ref.Name}
		}
		return nil
	}}
}

// freeByClass indexes available volumes by their class.
func freeByClass() client.Index {
	return client.Index{Name: "freeClass", Values: func(o kind.Object) []string {
		v := o.(*corev1.PersistentVolume)
		if v.Spec.ClaimRef != nil || v.Status.Phase != corev1.VolumeAvailable {
			return nil
		}
		return []string{volumeClass(v)}
	}}
}

// byVolume indexes claims by the volume they name.
func byVolume() client.Index {
	return client.Index{Name: "volume", Values: func(o kind.Object) []string {
		if name := o.(*corev1.PersistentVolumeClaim).Spec.VolumeName; name != "" {
			return []string{name}
		}
		return nil
	}}
}

// unboundByClass indexes claims without a volume by their class.
func unboundByClass() client.Index {
	return client.Index{Name: "unboundClass", Values: func(o kind.Object) []string {
		claim := o.(*corev1.PersistentVolumeClaim)
		if claim.Spec.VolumeName != "" || metav1.HasAnnotation(claim.ObjectMeta, bindCompleted) {
			return nil
		}
		return []string{claimClass(claim)}
	}}
}
