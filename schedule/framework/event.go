package framework

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
)

// Resource is a kind of object whose changes can make Pods schedulable. The names are upstream's and appear in metrics.
type Resource string

// The resources. There are three for Pods, depending on which Pod has changed.
const (
	AssignedPod    Resource = "AssignedPod"    // another Pod, on a node
	UnscheduledPod Resource = "UnscheduledPod" // another Pod, without a node
	TargetPod      Resource = "TargetPod"      // the rejected Pod itself

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

// Action is a set of kinds of changes.
type Action uint32

// The actions. Updates of nodes and Pods are distinguished by what was updated.
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
	Other // any other update

	Update = NodeAllocatable | NodeLabel | NodeTaint | NodeCondition | NodeAnnotation | NodeFeature | NodePreemptionPolicy |
		PodLabel | PodScaleDown | PodScaleUp | PodToleration | PodGatesGone | PodClaims | Other
	AnyAction = Add | Delete | Update
)

// String returns upstream's name of an action; for a set of actions, that of the first.
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

// ClassifyNodeUpdate returns what was updated in a node; 0 if nothing that plugins wait for.
func ClassifyNodeUpdate(was, is *corev1.Node) (a Action) {
	set := func(changed bool, bit Action) {
		if changed {
			a |= bit
		}
	}
	set(was.Spec.Unschedulable && !is.Spec.Unschedulable, NodeTaint)
	set(!equalResources(was.Status.Allocatable, is.Status.Allocatable), NodeAllocatable)
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

func equalResources(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// ClassifyPodUpdate returns what was updated in a Pod. Other updates are Other, which only matches hints for all
// updates.
func ClassifyPodUpdate(was, is *PodInfo) (a Action) {
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

// ResourceFor returns the Resource of an API resource, and false if no plugin waits for its changes.
func ResourceFor(r schema.GroupResource) (Resource, bool) {
	switch r {
	case gr.PersistentVolumes:
		return PersistentVolume, true
	case gr.PersistentVolumeClaims:
		return VolumeClaim, true
	case gr.StorageClasses:
		return StorageClass, true
	case gr.CSINodes:
		return CSINode, true
	case gr.CSIDrivers:
		return CSIDriver, true
	case gr.CSIStorageCapacities:
		return CSIStorageCapacity, true
	case gr.VolumeAttachments:
		return VolumeAttachment, true
	case gr.ResourceClaims:
		return ResourceClaim, true
	case gr.ResourceSlices:
		return ResourceSlice, true
	case gr.DeviceClasses:
		return DeviceClass, true
	case DeviceTaintRules():
		return DeviceTaintRule, true
	case PodGroups():
		return PodGroup, true
	}
	return "", false
}

// DeviceTaintRules returns the resource of DeviceTaintRules.
func DeviceTaintRules() schema.GroupResource {
	return schema.GroupResource{Group: resourcev1.GroupName, Resource: "devicetaintrules"}
}

// PodGroups returns the resource of PodGroups.
func PodGroups() schema.GroupResource {
	return schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
}
