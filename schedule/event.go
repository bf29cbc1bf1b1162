package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resource is a kind of thing whose changes wake pods up. The names are upstream's, which metrics show.
type Resource string

// The resources. A pod is seen in three roles.
const (
	AssignedPod    Resource = "AssignedPod"    // another pod, on a node
	UnscheduledPod Resource = "UnscheduledPod" // another pod, without a node
	TargetPod      Resource = "TargetPod"      // the rejected pod itself

	NodeResource       Resource = "Node"
	PersistentVolume   Resource = "PersistentVolume"
	VolumeClaim        Resource = "PersistentVolumeClaim"
	StorageClass       Resource = "storage.k8s.io/StorageClass"
	CSINode            Resource = "storage.k8s.io/CSINode"
	CSIDriver          Resource = "storage.k8s.io/CSIDriver"
	CSIStorageCapacity Resource = "storage.k8s.io/CSIStorageCapacity"
	VolumeAttachment   Resource = "storage.k8s.io/VolumeAttachment"
	ResourceClaim      Resource = "resource.k8s.io/ResourceClaim"
	ResourceSlice      Resource = "resource.k8s.io/ResourceSlice"
	DeviceTaintRule    Resource = "resource.k8s.io/DeviceTaintRule"
	DeviceClass        Resource = "resource.k8s.io/DeviceClass"
	PodGroup           Resource = "scheduling.k8s.io/PodGroup"
	Anything           Resource = "*"
)

// Action is a set of changes.
type Action uint32

// The actions. Nodes and pods say what of them was updated.
const (
	Add Action = 1 << iota
	Delete

	NodeAllocatable
	NodeLabel
	NodeTaint // or spec.unschedulable
	NodeCondition
	NodeAnnotation
	NodeFeature
	NodePreemptionPolicy

	PodLabel
	PodScaleDown
	PodScaleUp
	PodToleration
	PodGatesGone
	PodClaims
	Other // an update of nothing that has a name here

	Update = NodeAllocatable | NodeLabel | NodeTaint | NodeCondition | NodeAnnotation | NodeFeature | NodePreemptionPolicy |
		PodLabel | PodScaleDown | PodScaleUp | PodToleration | PodGatesGone | PodClaims | Other
	AnyAction = Add | Delete | Update
)

// String names an action as upstream does. Of several the first is named.
func (a Action) String() string {
	for _, n := range []struct {
		Action
		name string
	}{
		{Add, "Add"}, {Delete, "Delete"}, {NodeAllocatable, "UpdateNodeAllocatable"}, {NodeLabel, "UpdateNodeLabel"},
		{NodeTaint, "UpdateNodeTaint"}, {NodeCondition, "UpdateNodeCondition"}, {NodeAnnotation, "UpdateNodeAnnotation"},
		{NodeFeature, "UpdateNodeDeclaredFeature"}, {NodePreemptionPolicy, "UpdateNodePreemptionPolicy"}, {PodLabel, "UpdatePodLabel"},
		{PodScaleDown, "UpdatePodScaleDown"}, {PodScaleUp, "UpdatePodScaleUp"}, {PodToleration, "UpdatePodToleration"},
		{PodGatesGone, "UpdatePodSchedulingGatesEliminated"}, {PodClaims, "UpdatePodGeneratedResourceClaim"}, {Other, "Update"},
	} {
		if a == Update {
			return "Update"
		}
		if a&n.Action != 0 {
			return n.name
		}
	}
	return ""
}

// nodeChange says what of a node that matters here was updated.
func nodeChange(was, is *corev1.Node) (a Action) {
	set := func(changed bool, bit Action) {
		if changed {
			a |= bit
		}
	}
	set(was.Spec.Unschedulable && !is.Spec.Unschedulable, NodeTaint)
	set(!sameResources(was.Status.Allocatable, is.Status.Allocatable), NodeAllocatable)
	set(!maps.Equal(was.Labels, is.Labels), NodeLabel)
	set(!equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints), NodeTaint)
	set(!maps.Equal(conditions(was), conditions(is)), NodeCondition)
	set(!maps.Equal(was.Annotations, is.Annotations), NodeAnnotation)
	set(!slices.Equal(was.Status.DeclaredFeatures, is.Status.DeclaredFeatures), NodeFeature)
	set(!equality.Semantic.DeepEqual(was.Spec.PodPreemptionPolicy, is.Spec.PodPreemptionPolicy), NodePreemptionPolicy)
	return a
}

func conditions(n *corev1.Node) map[corev1.NodeConditionType]corev1.ConditionStatus {
	out := make(map[corev1.NodeConditionType]corev1.ConditionStatus, len(n.Status.Conditions))
	for i := range n.Status.Conditions {
		out[n.Status.Conditions[i].Type] = n.Status.Conditions[i].Status
	}
	return out
}

func sameResources(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// podChange says what of a pod that matters here was updated. An update of nothing in particular is Other, which wakes only
// who waits for all updates.
func podChange(was, is *PodInfo) (a Action) {
	if !maps.Equal(was.Pod.Labels, is.Pod.Labels) {
		a |= PodLabel
	}
	down, up := was.Requests.compare(&is.Requests)
	if down {
		a |= PodScaleDown
	}
	if up {
		a |= PodScaleUp
	}
	if len(was.Pod.Spec.SchedulingGates) > 0 && len(is.Pod.Spec.SchedulingGates) == 0 {
		a |= PodGatesGone
	}
	if len(was.Pod.Spec.Tolerations) != len(is.Pod.Spec.Tolerations) {
		a |= PodToleration
	}
	if !equality.Semantic.DeepEqual(was.Pod.Status.ResourceClaimStatuses, is.Pod.Status.ResourceClaimStatuses) ||
		!equality.Semantic.DeepEqual(was.Pod.Status.ExtendedResourceClaimStatus, is.Pod.Status.ExtendedResourceClaimStatus) {
		a |= PodClaims
	}
	if a == 0 {
		a = Other
	}
	return a
}
