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
	"proa.dev/kinds/lib/podrefs"
	"proa.dev/server/admissionlib"
)

func equal(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// restrictPod lets a node create mirror pods, and report the status of its pods, evict and delete them.
func restrictPod(ctx context.Context, a *kind.Admission, node string) error {
	switch a.Sub {
	case "":
	case "status":
		return restrictPodStatus(a, node)
	case "eviction":
		return restrictEviction(ctx, a, node)
	default:
		return a.Forbidf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Sub)
	}
	switch a.Verb {
	case "create":
		pod, ok := a.Object.(*corev1.Pod)
		if !ok {
			return a.Forbidf("unexpected type %T", a.Object)
		}
		return restrictMirrorPod(ctx, a, pod, node)
	case "delete":
		if old, ok := a.Old.(*corev1.Pod); !ok || old.Spec.NodeName != node {
			return a.Forbidf("node %q can only delete pods with spec.nodeName set to itself", node)
		}
		return nil
	}
	return a.Forbidf("unexpected operation %q, node %q can only create and delete mirror pods", operation(a), node)
}

// restrictMirrorPod checks a mirror pod that a node creates: it must be owned by the node, and must not refer to
// objects of the cluster.
func restrictMirrorPod(ctx context.Context, a *kind.Admission, pod *corev1.Pod, node string) error {
	if !admissionlib.IsMirrorPod(pod) {
		return a.Forbidf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	}
	if pod.Spec.NodeName != node {
		return a.Forbidf("node %q can only create pods with spec.nodeName set to itself", node)
	}
	if err := checkMirrorOwner(pod.OwnerReferences, node); err != nil {
		return a.Forbid(err)
	}
	o, err := a.Server.Get(ctx, schema.GroupResource{Resource: "nodes"}, "", node)
	if apierrors.IsNotFound(err) {
		return err
	}
	if err != nil {
		return a.Forbidf("error looking up node %s to verify uid: %v", node, err)
	}
	if owner := pod.OwnerReferences[0]; owner.UID != o.GetUID() {
		return a.Forbidf("node %s UID mismatch: expected %s got %s", node, owner.UID, o.GetUID())
	}
	what, err := podrefs.FirstReference(&pod.Spec)
	if err != nil {
		return a.Forbidf("error checking mirror pod for API references: %w", err)
	}
	if what != "" {
		return a.Forbidf("node %q can not create pods that reference %s", node, what)
	}
	return nil
}

// forbidMirrorPods keeps everybody but nodes from creating a mirror pod in the name of a node. The annotation alone is
// allowed, as upstream allows it: no node runs such a pod, and the node that it names deletes it. With the Node as its
// controller it would replace the mirror pod of a static pod, and show people another spec than the one that runs. With
// another controller, such as a ReplicaSet whose template has the annotation, node and controller would delete and
// create pods in turn forever.
func forbidMirrorPods(a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Verb != "create" && a.Verb != "update" || !admissionlib.IsMirrorPod(pod) {
		return nil
	}
	if by := metav1.GetControllerOf(pod); a.Verb == "create" && by != nil && !isControlledByNode(pod) {
		return a.Forbidf("a pod with the %q annotation shows what a node runs by itself, and is never one of the %s %q; remove the annotation from its template", corev1.MirrorPodAnnotationKey, by.Kind, by.Name)
	}
	if !isControlledByNode(pod) {
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && admissionlib.IsMirrorPod(old) && isControlledByNode(old) {
		return nil // it was one before
	}
	return a.Forbidf("only node %q can create a pod with the %q annotation and an owner reference to that node; remove one of them", metav1.GetControllerOf(pod).Name, corev1.MirrorPodAnnotationKey)
}

// isControlledByNode reports whether the controller of a pod is a Node.
func isControlledByNode(pod *corev1.Pod) bool {
	c := metav1.GetControllerOf(pod)
	return c != nil && c.APIVersion == "v1" && c.Kind == "Node"
}

// checkMirrorOwner checks the owner references of a mirror pod.
func checkMirrorOwner(owners []metav1.OwnerReference, node string) error {
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

func restrictPodStatus(a *kind.Admission, node string) error {
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

func restrictEviction(ctx context.Context, a *kind.Admission, node string) error {
	if a.Verb != "create" {
		return a.Forbidf("unexpected operation %s", operation(a))
	}
	pod, err := getPod(ctx, a, a.Name)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != node {
		return a.Forbidf("node %s can only evict pods with spec.nodeName set to itself", node)
	}
	return nil
}

// getPod reads a pod in the namespace of the write.
func getPod(ctx context.Context, a *kind.Admission, name string) (*corev1.Pod, error) {
	o, err := a.Server.Get(ctx, schema.GroupResource{Resource: "pods"}, a.Namespace, name)
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

// restrictClaimStatus lets a node report the progress of a volume expansion.
func restrictClaimStatus(a *kind.Admission, node string) error {
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
