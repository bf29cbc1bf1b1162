package mutate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/podref"
)

func equal(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// nodesPod lets a node show its static pods, tell how its pods are, and end them.
func nodesPod(ctx context.Context, a *kind.Admission, node string) error {
	switch a.Sub {
	case "":
	case "status":
		return nodesPodStatus(a, node)
	case "eviction":
		return nodesEviction(ctx, a, node)
	default:
		return a.Forbidf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Sub)
	}
	switch a.Verb {
	case "create":
		pod, ok := a.Object.(*corev1.Pod)
		if !ok {
			return a.Forbidf("unexpected type %T", a.Object)
		}
		return mirror(ctx, a, pod, node)
	case "delete":
		if old, ok := a.Old.(*corev1.Pod); !ok || old.Spec.NodeName != node {
			return a.Forbidf("node %q can only delete pods with spec.nodeName set to itself", node)
		}
		return nil
	}
	return a.Forbidf("unexpected operation %q, node %q can only create and delete mirror pods", operation(a), node)
}

// mirror checks a pod that a node shows to the cluster: it is the node's own, and it gets nothing of the cluster.
func mirror(ctx context.Context, a *kind.Admission, pod *corev1.Pod, node string) error {
	if _, is := pod.Annotations[corev1.MirrorPodAnnotationKey]; !is {
		return a.Forbidf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	}
	if pod.Spec.NodeName != node {
		return a.Forbidf("node %q can only create pods with spec.nodeName set to itself", node)
	}
	if err := ownedBy(pod.OwnerReferences, node); err != nil {
		return a.Forbid(err)
	}
	o, err := a.Door.Get(ctx, schema.GroupResource{Resource: "nodes"}, "", node)
	if apierrors.IsNotFound(err) {
		return err
	}
	if err != nil {
		return a.Forbidf("error looking up node %s to verify uid: %v", node, err)
	}
	if owner := pod.OwnerReferences[0]; owner.UID != o.GetUID() {
		return a.Forbidf("node %s UID mismatch: expected %s got %s", node, owner.UID, o.GetUID())
	}
	what, err := podref.Any(&pod.Spec)
	if err != nil {
		return a.Forbidf("error checking mirror pod for API references: %w", err)
	}
	if what != "" {
		return a.Forbidf("node %q can not create pods that reference %s", node, what)
	}
	return nil
}

// onlyNodesMirror keeps everybody else from making a mirror pod in the name of a node. The annotation alone may come from anybody, as
// it always could: no node runs such a pod, and the node that it names deletes it. With the Node as its controller it would take the
// place of the mirror of a static pod, and show people another spec than the one that runs. With another controller, such as a
// ReplicaSet whose template has the annotation, node and controller would delete and create pods in turn without an end.
func onlyNodesMirror(a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Verb != "create" && a.Verb != "update" || !isMirror(pod) {
		return nil
	}
	if by := metav1.GetControllerOf(pod); a.Verb == "create" && by != nil && !ofNode(pod) {
		return a.Forbidf("a pod with the %q annotation shows what a node runs by itself, and is never one of the %s %q; remove the annotation from its template", corev1.MirrorPodAnnotationKey, by.Kind, by.Name)
	}
	if !ofNode(pod) {
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && isMirror(old) && ofNode(old) {
		return nil // it was one before
	}
	return a.Forbidf("only node %q can create a pod with the %q annotation and an owner reference to that node; remove one of them", metav1.GetControllerOf(pod).Name, corev1.MirrorPodAnnotationKey)
}

// ofNode reports whether the controller of a pod is a Node.
func ofNode(pod *corev1.Pod) bool {
	c := metav1.GetControllerOf(pod)
	return c != nil && c.APIVersion == "v1" && c.Kind == "Node"
}

// ownedBy says what is wrong with the owners of a mirror pod.
func ownedBy(owners []metav1.OwnerReference, node string) error {
	switch {
	case len(owners) > 1:
		return fmt.Errorf("node %q can only create pods with a single owner reference set to itself", node)
	case len(owners) == 0 || owners[0].APIVersion != "v1" || owners[0].Kind != "Node" || owners[0].Name != node:
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	case owners[0].Controller == nil || !*owners[0].Controller:
		return fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", node)
	case owners[0].BlockOwnerDeletion != nil && *owners[0].BlockOwnerDeletion:
		return fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	return nil
}

func nodesPodStatus(a *kind.Admission, node string) error {
	if a.Verb != "update" {
		return a.Forbidf("unexpected operation %q", operation(a))
	}
	old, ok := a.Old.(*corev1.Pod)
	pod, is := a.Object.(*corev1.Pod)
	switch {
	case !ok:
		return a.Forbidf("unexpected type %T", a.Old)
	case old.Spec.NodeName != node:
		return a.Forbidf("node %q can only update pod status for pods with spec.nodeName set to itself", node)
	case !is:
		return a.Forbidf("unexpected type %T", a.Object)
	case !equal(old.Labels, pod.Labels):
		return a.Forbidf("node %q cannot update labels through pod status", node)
	case !equal(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses):
		return a.Forbidf("node %q cannot update resource claim statues", node)
	case !equal(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return a.Forbidf("node %q cannot update extended resource claim status", node)
	case !equal(old.Status.NodeAllocatableResourceClaimStatuses, pod.Status.NodeAllocatableResourceClaimStatuses):
		return a.Forbidf("node %q cannot update node allocatable resource claim statuses", node)
	}
	return nil
}

func nodesEviction(ctx context.Context, a *kind.Admission, node string) error {
	if a.Verb != "create" {
		return a.Forbidf("unexpected operation %s", operation(a))
	}
	pod, err := podNamed(ctx, a, a.Name)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != node {
		return a.Forbidf("node %s can only evict pods with spec.nodeName set to itself", node)
	}
	return nil
}

// podNamed finds a pod in the namespace of the write.
func podNamed(ctx context.Context, a *kind.Admission, name string) (*corev1.Pod, error) {
	o, err := a.Door.Get(ctx, schema.GroupResource{Resource: "pods"}, a.Namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, err
	}
	if err != nil {
		return nil, a.Forbid(err)
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil, a.Forbidf("unexpected type %T", o)
	}
	return pod, nil
}

// nodesClaimStatus lets a node tell how far the expansion of a volume is.
func nodesClaimStatus(a *kind.Admission, node string) error {
	if a.Verb != "update" {
		return a.Forbidf("unexpected operation %q", operation(a))
	}
	old, ok := a.Old.(*corev1.PersistentVolumeClaim)
	claim, is := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || !is {
		return a.Forbidf("unexpected type %T", a.Object)
	}
	strip := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		c = c.DeepCopy()
		c.TypeMeta, c.ResourceVersion, c.ManagedFields = metav1.TypeMeta{}, "", nil
		s := &c.Status
		s.Capacity, s.Conditions, s.AllocatedResources, s.AllocatedResourceStatuses = nil, nil, nil, nil
		return c
	}
	if !equal(strip(old), strip(claim)) {
		return a.Forbidf("node %q is not allowed to update fields other than status.quantity and status.conditions", node)
	}
	return nil
}
