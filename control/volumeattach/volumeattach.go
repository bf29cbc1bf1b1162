// Package volumeattach attaches volumes of CSI drivers to the nodes where Pods use them, and detaches them when no Pod does any
// more. It creates and deletes VolumeAttachments, which the drivers' attachers carry out, and writes the attached volumes into
// the status of nodes.
//
// A volume is detached only when its node reports that it is not mounted, unless the node is out of service, or has been
// unhealthy for a long time.
package volumeattach

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
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/podrefs"
)

const (
	// managedAnnotation is the annotation of nodes whose volumes this controller attaches.
	managedAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"
	// volumeNamePrefix is the prefix of the names of attached volumes.
	volumeNamePrefix = "kubernetes.io/csi/"
	// forceDetachAfter is the time after which an unused volume is detached by force from an unhealthy node.
	forceDetachAfter = 6 * time.Minute
)

// Config has the settings of the controller.
type Config struct {
	// NoForcedDetach turns off forced detaching after a timeout.
	NoForcedDetach bool
}

// Controller returns the controller. It has one worker, so that a volume for a single node is never attached to two.
func Controller(config Config) control.Controller {
	m := newMemory()
	return control.Controller{
		Name: "attachdetach-controller", Component: "attachdetach-controller", For: gr.Nodes, When: isRelevantNodeChange, Workers: 1,
		Triggers: []control.Trigger{
			{On: gr.VolumeAttachments, Keys: nodesOfAttachment},
			{On: gr.Pods, Keys: nodeOfPod, When: isRelevantPodChange},
			{On: gr.PersistentVolumeClaims, Keys: nodesOfClaim, When: isRelevantClaimChange},
			{On: gr.PersistentVolumes, Keys: nodesOfVolume, When: func(old, now kind.Object) bool { return old == nil || now == nil }},
			{On: gr.CSIDrivers, Keys: control.AllKeys(gr.Nodes)},
		},
		Writes: []control.Write{
			{On: gr.VolumeAttachments, Do: "create delete"},
			{On: gr.Nodes, Do: "get update/status"},
		},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			return reconcileNode(ctx, c, k.Name, m, config)
		},
	}
}

// uniqueName returns the name of a CSI volume in the status of nodes.
func uniqueName(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(volumeNamePrefix + driver + "^" + handle)
}

// attachmentName returns the name of the VolumeAttachment of a volume and a node. VolumeAttachments with other names belong to
// other programs.
func attachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// isRelevantNodeChange ignores changes of nodes that do not concern volumes, which are nearly all.
func isRelevantNodeChange(old, now kind.Object) bool {
	was, had := old.(*corev1.Node)
	is, has := now.(*corev1.Node)
	if !had || !has {
		return true
	}
	return was.UID != is.UID || !slices.Equal(was.Status.VolumesInUse, is.Status.VolumesInUse) ||
		!apiequality.Semantic.DeepEqual(was.Status.VolumesAttached, is.Status.VolumesAttached) ||
		was.Annotations[managedAnnotation] != is.Annotations[managedAnnotation] || isReady(was) != isReady(is) ||
		isOutOfService(was) != isOutOfService(is)
}

func isRelevantPodChange(old, now kind.Object) bool {
	was, had := old.(*corev1.Pod)
	is, has := now.(*corev1.Pod)
	if !had || !has {
		return true
	}
	return was.Spec.NodeName != is.Spec.NodeName || hasEnded(was) != hasEnded(is)
}

func isRelevantClaimChange(old, now kind.Object) bool {
	was, had := old.(*corev1.PersistentVolumeClaim)
	is, has := now.(*corev1.PersistentVolumeClaim)
	return had && has && was.Status.Phase != is.Status.Phase || !had && has && is.Status.Phase == corev1.ClaimBound
}

func nodeOfPod(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if p := o.(*corev1.Pod); p.Spec.NodeName != "" && len(podrefs.VolumeClaims(p)) > 0 {
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

// nodesOfAttachment yields the node of an attachment, and those that may wait for the volume.
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

// nodesOf yields the nodes with Pods that use a claim.
func nodesOf(c *control.Cluster, claim string) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByClaim(), claim) {
			if p.Spec.NodeName != "" && !yield(control.Key{Name: p.Spec.NodeName}) {
				return
			}
		}
	}
}

// byAttachedNode indexes VolumeAttachments by their nodes.
func byAttachedNode() client.Index {
	return client.Index{Name: "node", Values: func(o kind.Object) []string {
		return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName}
	}}
}

// byAttachedVolume indexes VolumeAttachments by their volumes.
func byAttachedVolume() client.Index {
	return client.Index{Name: "volume", Values: func(o kind.Object) []string {
		if name := o.(*storagev1.VolumeAttachment).Spec.Source.PersistentVolumeName; name != nil {
			return []string{*name}
		}
		return nil
	}}
}

// splitName is the inverse of uniqueName.
func splitName(name corev1.UniqueVolumeName) (driver, handle string, ok bool) {
	rest, ok := strings.CutPrefix(string(name), volumeNamePrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "^")
}
