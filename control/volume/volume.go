// Package volume binds PersistentVolumeClaims to PersistentVolumes: it finds a volume for a claim or asks for one to be made,
// makes the two point at each other, keeps their phases, and reclaims volumes whose claims are gone.
//
// Volumes are made and deleted by provisioners that run outside. What is said to them, and by them, is in annotations.
package volume

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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/podref"
)

// Config is what can be different from one cluster to the next.
type Config struct {
	// Remove removes the folder of a hostPath volume with the policy Delete; only paths below /tmp come here. nil stands for
	// this machine's own file system.
	Remove func(path string) error
}

// binder is what the two loops share.
type binder struct {
	Config
	news news

	mu    sync.Mutex      // guards what follows
	aside map[string]bool // volumes that a worker is about to bind
	// failed is when volumes could not be emptied.
	failed map[string]time.Time
}

// Controllers returns the loop of claims and the loop of volumes.
func Controllers(config Config) []control.Controller {
	if config.Remove == nil {
		config.Remove = os.RemoveAll
	}
	b := &binder{Config: config, aside: map[string]bool{}, failed: map[string]time.Time{}}
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
			{On: gr.Pods, Keys: claimsOfPod, When: placed},
		},
		Writes: writes, Reconcile: b.lookClaim,
	}, {
		Name: "persistent-volume-binder", Component: "persistentvolume-controller", For: gr.PersistentVolumes, Workers: 8,
		Triggers: []control.Trigger{
			{On: gr.PersistentVolumeClaims, Keys: volumesOfClaim},
			{On: gr.Pods, Keys: volumesOfPod, When: func(old, now kind.Object) bool {
				return old == nil || now == nil || ended(old.(*corev1.Pod)) != ended(now.(*corev1.Pod))
			}},
		},
		Writes: writes, Reconcile: b.lookVolume,
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

// claimsOfVolume are the claims that a change of a volume may concern: the one it points at, those that ask for it by name, and
// if it is free those it would fit.
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
			if fit, err := best(claim, []*corev1.PersistentVolume{v}, false); err == nil && fit != nil && !yield(control.KeyOf(claim)) {
				return
			}
		}
	}
}

// claimsOfClass are the claims without a volume that a class matters to, those that name none included: it may be the default.
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

// claimsOfPod are the claims without a volume that a Pod uses.
func claimsOfPod(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for _, name := range podref.Claims(o.(*corev1.Pod)) {
			claim, found := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, o.GetNamespace(), name)
			if found && claim.Spec.VolumeName == "" && !yield(control.KeyOf(claim)) {
				return
			}
		}
	}
}

// placed leaves out what happens to a Pod once it is on a node.
func placed(old, now kind.Object) bool {
	if old == nil || now == nil {
		return true
	}
	return old.(*corev1.Pod).Spec.NodeName != now.(*corev1.Pod).Spec.NodeName
}

// volumesOfClaim are the volumes that a claim points at, or that point at it.
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

// volumesOfPod is the volume that a Pod empties, and those to be emptied that it uses.
func volumesOfPod(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	if name, ok := strings.CutPrefix(o.GetName(), recyclerPrefix); ok && o.GetNamespace() == metav1.NamespaceDefault {
		return keys(control.Key{Name: name})
	}
	return func(yield func(control.Key) bool) {
		for _, name := range podref.Claims(o.(*corev1.Pod)) {
			for v := range control.By[*corev1.PersistentVolume](c, gr.PersistentVolumes, byClaimRef(), o.GetNamespace()+"/"+name) {
				if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle && !yield(control.KeyOf(v)) {
					return
				}
			}
		}
	}
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// byClaimRef finds volumes by the claims they point at.
func byClaimRef() client.Index {
	return client.Index{Name: "claimRef", Of: func(o kind.Object) []string {
		if ref := o.(*corev1.PersistentVolume).Spec.ClaimRef; ref != nil {
			return []string{ref.Namespace + "/" + ref.Name}
		}
		return nil
	}}
}

// freeByClass finds the volumes that nobody has, by their class.
func freeByClass() client.Index {
	return client.Index{Name: "freeClass", Of: func(o kind.Object) []string {
		v := o.(*corev1.PersistentVolume)
		if v.Spec.ClaimRef != nil || v.Status.Phase != corev1.VolumeAvailable {
			return nil
		}
		return []string{volumeClass(v)}
	}}
}

// byVolume finds claims by the volume they name.
func byVolume() client.Index {
	return client.Index{Name: "volume", Of: func(o kind.Object) []string {
		if name := o.(*corev1.PersistentVolumeClaim).Spec.VolumeName; name != "" {
			return []string{name}
		}
		return nil
	}}
}

// unboundByClass finds the claims that have no volume, by their class.
func unboundByClass() client.Index {
	return client.Index{Name: "unboundClass", Of: func(o kind.Object) []string {
		claim := o.(*corev1.PersistentVolumeClaim)
		if claim.Spec.VolumeName != "" || metav1.HasAnnotation(claim.ObjectMeta, bindCompleted) {
			return nil
		}
		return []string{claimClass(claim)}
	}}
}
