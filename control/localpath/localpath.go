// Package localpath makes volumes that are folders of a node, for claims of classes with the provisioner proa.dev/local-path,
// and has their folders removed when the claims are gone.
//
// Only objects are written here. The folder of a volume is made by the agent of its node when a Pod first uses it, and removed
// by it when the list of work on its Node says so; kinds/localpath has the words.
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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/localpath"
)

// Controllers are the loop that makes volumes and the one that removes them.
func Controllers() []control.Controller {
	return []control.Controller{{
		Name: "local-path-provisioner", Component: localpath.Provisioner, For: gr.PersistentVolumeClaims, Workers: 4,
		Triggers: []control.Trigger{
			{On: gr.StorageClasses, Keys: claimsOfClass},
			{On: gr.Nodes, Keys: claimsOfNode, When: foldersChange},
		},
		Writes: []control.Write{
			{On: gr.PersistentVolumes, Do: "create"},
			{On: gr.PersistentVolumeClaims, Do: "update"},
		},
		Reconcile: provision,
	}, {
		Name: "local-path-remover", Component: localpath.Provisioner, For: gr.PersistentVolumes, Workers: 4,
		Triggers: []control.Trigger{{On: gr.Nodes, Keys: volumesOfNode, When: workChanges}},
		Writes: []control.Write{
			{On: gr.PersistentVolumes, Do: "update delete"},
			{On: gr.Nodes, Do: "update"},
		},
		Reconcile: remove,
	}}
}

// foldersChange leaves out the changes of a Node that say nothing about where volumes can be.
func foldersChange(old, now kind.Object) bool {
	return old == nil || now == nil || old.GetAnnotations()[localpath.Folder] != now.GetAnnotations()[localpath.Folder]
}

// workChanges leaves out the changes of a Node that say nothing about removed folders.
func workChanges(old, now kind.Object) bool {
	return old == nil || now == nil || old.GetAnnotations()[localpath.Work] != now.GetAnnotations()[localpath.Work]
}

func claims(c *control.Cluster, which func(*corev1.PersistentVolumeClaim) bool) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for claim := range control.List[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, "") {
			if claim.Spec.VolumeName == "" && which(claim) && !yield(control.KeyOf(claim)) {
				return
			}
		}
	}
}

func claimsOfClass(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return claims(c, func(claim *corev1.PersistentVolumeClaim) bool { return classOf(claim) == o.GetName() })
}

func claimsOfNode(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return claims(c, func(claim *corev1.PersistentVolumeClaim) bool { return claim.Annotations[selectedNode] == o.GetName() })
}

// volumesOfNode are those whose folders are on a Node, and those on its list, which may be gone.
func volumesOfNode(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if n, ok := o.(*corev1.Node); ok {
			for name := range localpath.WorkOf(n) {
				if !yield(control.Key{Name: name}) {
					return
				}
			}
		}
		for v := range control.List[*corev1.PersistentVolume](c, gr.PersistentVolumes, "") {
			if v.Annotations[localpath.Node] == o.GetName() && !yield(control.KeyOf(v)) {
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
		c.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %s", class.Name, p.problem)
	}
	switch {
	case p.elsewhere:
		next := claim.DeepCopy()
		delete(next.Annotations, selectedNode)
		_, err := c.Update(ctx, gr.PersistentVolumeClaims, next, "")
		return 0, control.Gone(err)
	case p.volume == nil:
		return 0, nil
	}
	c.Event(claim, corev1.EventTypeNormal, "Provisioning", "External provisioner is provisioning volume for claim %q", k.Namespace+"/"+k.Name)
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
		return 0, forget(ctx, c, k.Name)
	}
	node, _ := control.Get[*corev1.Node](c, gr.Nodes, "", v.Annotations[localpath.Node])
	switch decideRemoval(v, node) {
	case stay:
	case ask:
		next := node.DeepCopy()
		work := localpath.WorkOf(next)
		work[v.Name] = localpath.Remove
		localpath.SetWork(next, work)
		_, err := c.Update(ctx, gr.Nodes, next, "")
		return 0, control.Gone(err)
	case drop:
		return 0, control.Gone(c.Delete(ctx, gr.PersistentVolumes, "", v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(v.UID)}}))
	case release:
		next := v.DeepCopy()
		next.Finalizers = without(next.Finalizers, localpath.Finalizer)
		_, err := c.Update(ctx, gr.PersistentVolumes, next, "")
		return 0, control.Gone(err)
	}
	return 0, nil
}

// forget takes a volume that is gone off the lists of Nodes, if its folder is gone too.
func forget(ctx context.Context, c *control.Cluster, name string) error {
	for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
		work := localpath.WorkOf(n)
		if work[name] != localpath.Removed {
			continue
		}
		next := n.DeepCopy()
		delete(work, name)
		localpath.SetWork(next, work)
		if _, err := c.Update(ctx, gr.Nodes, next, ""); err != nil {
			return control.Gone(err)
		}
	}
	return nil
}
