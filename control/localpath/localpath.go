// Package localpath provisions volumes that are folders of a node, for claims of classes with the provisioner
// proa.dev/local-path, and removes them when their claims are deleted.
//
// The controllers only write objects. The agent of a node creates the folder of a volume when a Pod first uses it, and removes
// it when an annotation of its Node asks for that; kinds/lib/localvolume defines the annotations.
package localpath

import (
	"context"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/localvolume"
)

// Controllers returns the controller that provisions volumes and the one that removes them.
func Controllers() []control.Controller {
	return []control.Controller{{
		Name: "local-path-provisioner", Component: localvolume.Provisioner, For: gr.PersistentVolumeClaims, Workers: 4,
		Triggers: []control.Trigger{
			{On: gr.StorageClasses, Keys: claimsOfClass},
			{On: gr.Nodes, Keys: claimsOfNode, When: isRelevantNodeChange},
		},
		Writes: []control.Write{
			{On: gr.PersistentVolumes, Do: "create"},
			{On: gr.PersistentVolumeClaims, Do: "update"},
		},
		Reconcile: provision,
	}, {
		Name: "local-path-remover", Component: localvolume.Provisioner, For: gr.PersistentVolumes, Workers: 4,
		Triggers: []control.Trigger{{On: gr.Nodes, Keys: volumesOfNode, When: hasNewWork}},
		Writes: []control.Write{
			{On: gr.PersistentVolumes, Do: "update delete"},
			{On: gr.Nodes, Do: "update"},
		},
		Reconcile: remove,
	}}
}

// isRelevantNodeChange ignores changes of a Node other than of its folder for volumes.
func isRelevantNodeChange(old, now kind.Object) bool {
	return old == nil || now == nil ||
		old.GetAnnotations()[localvolume.FolderAnnotation] != now.GetAnnotations()[localvolume.FolderAnnotation]
}

// hasNewWork ignores changes of a Node other than of the list of folders to remove.
func hasNewWork(old, now kind.Object) bool {
	return old == nil || now == nil || old.GetAnnotations()[localvolume.WorkAnnotation] != now.GetAnnotations()[localvolume.WorkAnnotation]
}

func unboundClaims(c *control.Cluster, which func(*corev1.PersistentVolumeClaim) bool) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for claim := range control.List[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, "") {
			if claim.Spec.VolumeName == "" && which(claim) && !yield(control.KeyOf(claim)) {
				return
			}
		}
	}
}

func claimsOfClass(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return unboundClaims(c, func(claim *corev1.PersistentVolumeClaim) bool { return classOf(claim) == o.GetName() })
}

func claimsOfNode(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return unboundClaims(c, func(claim *corev1.PersistentVolumeClaim) bool { return claim.Annotations[selectedNode] == o.GetName() })
}

// volumesOfNode yields the volumes whose folders are on a Node, and those on its list of work, which may be deleted.
func volumesOfNode(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if n, ok := o.(*corev1.Node); ok {
			for name := range localvolume.WorkOf(n) {
				if !yield(control.Key{Name: name}) {
					return
				}
			}
		}
		for v := range control.List[*corev1.PersistentVolume](c, gr.PersistentVolumes, "") {
			if v.Annotations[localvolume.NodeAnnotation] == o.GetName() && !yield(control.KeyOf(v)) {
				return
			}
		}
	}
}

func provision(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	claim, found := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, k.Namespace, k.Name)
	if !found {
		return 0, nil
	}
	class, _ := control.Get[*storagev1.StorageClass](c, gr.StorageClasses, "", classOf(claim))
	node, _ := control.Get[*corev1.Node](c, gr.Nodes, "", claim.Annotations[selectedNode])
	p := decide(claim, class, node)
	if p.problem != "" {
		c.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %s", class.Name,
			p.problem)
	}
	switch {
	case p.reschedule:
		next := claim.DeepCopy()
		delete(next.Annotations, selectedNode)
		_, err := c.Update(ctx, gr.PersistentVolumeClaims, next, "")
		return 0, control.IgnoreNotFound(err)
	case p.volume == nil:
		return 0, nil
	}
	c.Event(claim, corev1.EventTypeNormal, "Provisioning", "External provisioner is provisioning volume for claim %q",
		k.Namespace+"/"+k.Name)
	_, err := c.Create(ctx, gr.PersistentVolumes, p.volume)
	if apierrors.IsAlreadyExists(err) {
		return 0, nil // the claim will be bound to it
	}
	if err == nil {
		c.Event(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", p.volume.Name)
	}
	return 0, err
}

func remove(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	v, found := control.Get[*corev1.PersistentVolume](c, gr.PersistentVolumes, "", k.Name)
	if !found {
		return 0, clearWork(ctx, c, k.Name)
	}
	node, _ := control.Get[*corev1.Node](c, gr.Nodes, "", v.Annotations[localvolume.NodeAnnotation])
	switch decideRemoval(v, node) {
	case keep:
	case requestRemoval:
		next := node.DeepCopy()
		work := localvolume.WorkOf(next)
		work[v.Name] = localvolume.Remove
		localvolume.SetWork(next, work)
		_, err := c.Update(ctx, gr.Nodes, next, "")
		return 0, control.IgnoreNotFound(err)
	case deleteObject:
		return 0, control.IgnoreNotFound(c.Delete(ctx, gr.PersistentVolumes, "", v.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(v.UID)}}))
	case removeFinalizer:
		next := v.DeepCopy()
		next.Finalizers = withoutElement(next.Finalizers, localvolume.Finalizer)
		_, err := c.Update(ctx, gr.PersistentVolumes, next, "")
		return 0, control.IgnoreNotFound(err)
	}
	return 0, nil
}

// clearWork removes a deleted volume from the lists of work of Nodes, if its folder was removed.
func clearWork(ctx context.Context, c *control.Cluster, name string) error {
	for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
		work := localvolume.WorkOf(n)
		if work[name] != localvolume.Removed {
			continue
		}
		next := n.DeepCopy()
		delete(work, name)
		localvolume.SetWork(next, work)
		if _, err := c.Update(ctx, gr.Nodes, next, ""); err != nil {
			return control.IgnoreNotFound(err)
		}
	}
	return nil
}
