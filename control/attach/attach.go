// Package attach has volumes of CSI drivers attached to the nodes where Pods use them, and detached when none does any more. It
// asks with VolumeAttachments, which the drivers' attachers fulfil, and tells nodes in their status what is attached.
//
// A volume is detached only when its node says that it is no longer mounted, unless the node is out of service, or has been
// unhealthy for so long that waiting makes no sense.
package attach

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/podref"
)

const (
	// managed is the annotation of nodes whose volumes are attached from here.
	managed = "volumes.kubernetes.io/controller-managed-attach-detach"
	// plugin is how the names of attached volumes begin.
	plugin = "kubernetes.io/csi/"
	// patience is how long an unhealthy node may keep a volume that nobody needs there any more.
	patience = 6 * time.Minute
)

// Config is what can be different from one cluster to the next.
type Config struct {
	// Gentle says that nothing is ever detached by force because time has passed.
	Gentle bool
}

// Controller returns the loop. It has one worker: a volume that only one node may have must not be given to two at once.
func Controller(config Config) control.Controller {
	m := newMemory()
	return control.Controller{
		Name: "attachdetach-controller", Component: "attachdetach-controller", For: gr.Nodes, When: nodeMatters, Workers: 1,
		Triggers: []control.Trigger{
			{On: gr.VolumeAttachments, Keys: nodesOfAttachment},
			{On: gr.Pods, Keys: nodeOfPod, When: podMatters},
			{On: gr.PersistentVolumeClaims, Keys: nodesOfClaim, When: claimMatters},
			{On: gr.PersistentVolumes, Keys: nodesOfVolume, When: func(old, now kind.Object) bool { return old == nil || now == nil }},
			{On: gr.CSIDrivers, Keys: control.All(gr.Nodes)},
		},
		Writes: []control.Write{
			{On: gr.VolumeAttachments, Do: "create delete"},
			{On: gr.Nodes, Do: "get update/status"},
		},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			return look(ctx, c, k.Name, m, config)
		},
	}
}

// uniqueName is how nodes know a volume of a driver.
func uniqueName(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(plugin + driver + "^" + handle)
}

// attachmentName is the name of the VolumeAttachment of a volume and a node. Others make VolumeAttachments too; those with
// other names are theirs.
func attachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// nodeMatters leaves out the changes of nodes that have nothing to do with volumes, which are nearly all.
func nodeMatters(old, now kind.Object) bool {
	was, had := old.(*corev1.Node)
	is, has := now.(*corev1.Node)
	if !had || !has {
		return true
	}
	return was.UID != is.UID || !slices.Equal(was.Status.VolumesInUse, is.Status.VolumesInUse) ||
		!apiequality.Semantic.DeepEqual(was.Status.VolumesAttached, is.Status.VolumesAttached) ||
		was.Annotations[managed] != is.Annotations[managed] || healthy(was) != healthy(is) || outOfService(was) != outOfService(is)
}

func podMatters(old, now kind.Object) bool {
	was, had := old.(*corev1.Pod)
	is, has := now.(*corev1.Pod)
	if !had || !has {
		return true
	}
	return was.Spec.NodeName != is.Spec.NodeName || ended(was) != ended(is)
}

func claimMatters(old, now kind.Object) bool {
	was, had := old.(*corev1.PersistentVolumeClaim)
	is, has := now.(*corev1.PersistentVolumeClaim)
	return had && has && was.Status.Phase != is.Status.Phase || !had && has && is.Status.Phase == corev1.ClaimBound
}

func nodeOfPod(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if p := o.(*corev1.Pod); p.Spec.NodeName != "" && len(podref.Claims(p)) > 0 {
			yield(control.Key{Name: p.Spec.NodeName})
		}
	}
}

func nodesOfClaim(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return nodesOf(c, o.GetNamespace()+"/"+o.GetName())
}

func nodesOfVolume(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return func(func(control.Key) bool) {}
	}
	return nodesOf(c, ref.Namespace+"/"+ref.Name)
}

// nodesOfAttachment are its own node, and those that may wait for the volume to be free.
func nodesOfAttachment(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		a := o.(*storagev1.VolumeAttachment)
		if !yield(control.Key{Name: a.Spec.NodeName}) || a.Spec.Source.PersistentVolumeName == nil {
			return
		}
		if v, found := control.Get[*corev1.PersistentVolume](c, gr.PersistentVolumes, "", *a.Spec.Source.PersistentVolumeName); found {
			for k := range nodesOfVolume(c, v) {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// nodesOf are the nodes where Pods use a claim.
func nodesOf(c *control.Cluster, claim string) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByClaim(), claim) {
			if p.Spec.NodeName != "" && !yield(control.Key{Name: p.Spec.NodeName}) {
				return
			}
		}
	}
}

// byAttachedNode finds VolumeAttachments by their nodes, byAttachedVolume by their volumes.
func byAttachedNode() client.Index {
	return client.Index{Name: "node", Of: func(o kind.Object) []string {
		return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName}
	}}
}

func byAttachedVolume() client.Index {
	return client.Index{Name: "volume", Of: func(o kind.Object) []string {
		if name := o.(*storagev1.VolumeAttachment).Spec.Source.PersistentVolumeName; name != nil {
			return []string{*name}
		}
		return nil
	}}
}

// split takes apart the name by which nodes know a volume of a driver.
func split(name corev1.UniqueVolumeName) (driver, handle string, ok bool) {
	rest, ok := strings.CutPrefix(string(name), plugin)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "^")
}
