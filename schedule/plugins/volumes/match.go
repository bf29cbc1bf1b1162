package volumes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// podVolumes has the claims of a Pod.
type podVolumes struct {
	cluster        framework.Cluster
	bound, waiting []*corev1.PersistentVolumeClaim
	immediate      bool // an unbound claim does not wait for its first consumer
	free           map[string][]*volumeAffinity
	places         map[string]*volumeAffinity // the volumes of bound claims, by name
}

// volumeAffinity is a volume with its parsed node affinity.
type volumeAffinity struct {
	*corev1.PersistentVolume
	nodes *nodeaffinity.NodeSelector // nil if it is reachable from all nodes
	err   error
}

func parseVolumeAffinity(v *corev1.PersistentVolume) *volumeAffinity {
	out := &volumeAffinity{PersistentVolume: v}
	if v.Spec.NodeAffinity != nil && v.Spec.NodeAffinity.Required != nil {
		out.nodes, out.err = nodeaffinity.NewNodeSelector(v.Spec.NodeAffinity.Required)
	}
	return out
}

// isReachableFrom reports whether the volume can be used on a node. Only the labels of the node are evaluated.
func (v *volumeAffinity) isReachableFrom(node *corev1.Node) bool {
	if v.err != nil {
		return false
	}
	return v.nodes == nil || v.nodes.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: node.Labels}})
}

func (v *podVolumes) needsClass(class string) bool {
	_, is := v.free[class]
	return is
}

// requestedSize returns the size that a claim requests.
func requestedSize(claim *corev1.PersistentVolumeClaim) *resource.Quantity {
	q := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return &q
}

// plan returns what has to be done for the volumes on a node, or why the node is not suitable.
func (v *podVolumes) plan(node *corev1.Node) (*volumePlan, conflict, error) {
	var trouble conflict
	for _, claim := range v.bound {
		at := v.places[claim.Spec.VolumeName]
		if at == nil {
			volume, err := getVolume(v.cluster, claim.Spec.VolumeName)
			if err != nil {
				trouble |= volumeMissing
				break
			}
			at = parseVolumeAffinity(volume)
			v.places[claim.Spec.VolumeName] = at
		}
		if !at.isReachableFrom(node) {
			trouble |= nodeAffinityConflict
			break
		}
	}
	plan := &volumePlan{}
	var provide []*corev1.PersistentVolumeClaim
	for _, claim := range v.waiting {
		selected, is := claim.Annotations[annSelectedNode]
		if is && selected != node.Name {
			return nil, trouble | noVolumeToBind, nil
		}
		if is {
			provide = append(provide, claim)
		}
	}
	chosen := map[string]bool{}
	for _, claim := range v.waiting {
		if _, is := claim.Annotations[annSelectedNode]; is {
			continue
		}
		found, err := findVolume(claim, v.free[storageClassOf(claim)], node, chosen)
		if err != nil {
			return nil, 0, err
		}
		if found == nil {
			provide = append(provide, claim)
			continue
		}
		chosen[found.Name] = true
		plan.bind = append(plan.bind, volumeMatch{claim, found})
	}
	for _, claim := range provide {
		capacity, t, err := v.canProvision(claim, node)
		if err != nil {
			return nil, 0, err
		}
		if t != 0 {
			return nil, trouble | t, nil
		}
		plan.provision = append(plan.provision, provision{claim, capacity})
	}
	return plan, trouble, nil
}

// findVolume returns a volume for a claim: the one that is reserved for it, or the smallest that is large enough.
func findVolume(claim *corev1.PersistentVolumeClaim, volumes []*volumeAffinity, node *corev1.Node,
	taken map[string]bool) (*corev1.PersistentVolume, error) {
	selector := labels.Everything()
	if claim.Spec.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(claim.Spec.Selector); err != nil {
			return nil, fmt.Errorf("error creating internal label selector for claim: %v/%v: %w", claim.Namespace, claim.Name, err)
		}
	}
	var best *corev1.PersistentVolume
	var least resource.Quantity
	for _, v := range volumes {
		has := v.Spec.Capacity[corev1.ResourceStorage]
		mine := isReservedFor(v.PersistentVolume, claim)
		if taken[v.Name] || v.Spec.ClaimRef != nil && !mine || has.Cmp(*requestedSize(claim)) < 0 ||
			!isCompatible(v.PersistentVolume, claim) {
			continue
		}
		if mine {
			if !v.isReachableFrom(node) {
				return nil, nil
			}
			return v.PersistentVolume, nil
		}
		if v.Status.Phase != corev1.VolumeAvailable || !selector.Matches(labels.Set(v.Labels)) ||
			storageClassOfVolume(v.PersistentVolume) != storageClassOf(claim) ||
			!supportsAccessModes(v.PersistentVolume, claim) || best != nil && least.Cmp(has) <= 0 || !v.isReachableFrom(node) {
			continue
		}
		best, least = v.PersistentVolume, has
	}
	return best, nil
}

// isCompatible reports whether a volume is not being deleted, and has the volume mode and attributes class that a claim
// requests.
func isCompatible(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return v.DeletionTimestamp == nil &&
		ptr.Deref(v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == ptr.Deref(claim.Spec.VolumeMode,
			corev1.PersistentVolumeFilesystem) &&
		ptr.Deref(v.Spec.VolumeAttributesClassName, "") == ptr.Deref(claim.Spec.VolumeAttributesClassName, "")
}

// canProvision returns the capacity from which a volume for a claim can be provisioned on a node, if known, or why that
// is not possible.
func (v *podVolumes) canProvision(claim *corev1.PersistentVolumeClaim, node *corev1.Node) (*storagev1.CSIStorageCapacity, conflict, error) {
	name := storageClassOf(claim)
	if name == "" {
		return nil, 0, fmt.Errorf("no class for claim %q", claim.Namespace+"/"+claim.Name)
	}
	class, err := getClass(v.cluster, name)
	if err != nil {
		return nil, 0, fmt.Errorf("failed to find storage class %q", name)
	}
	if class.Provisioner == "" || class.Provisioner == noProvisioner || !inTopology(class.AllowedTopologies, node) {
		return nil, noVolumeToBind, nil
	}
	want, asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	o, found := v.cluster.Get(gr.CSIDrivers, "", class.Provisioner)
	if !asked || !found || !ptr.Deref(o.(*storagev1.CSIDriver).Spec.StorageCapacity, false) {
		return nil, 0, nil
	}
	for o := range v.cluster.List(gr.CSIStorageCapacities, "") {
		c := o.(*storagev1.CSIStorageCapacity)
		if c.StorageClassName != class.Name || largestVolume(c) < want.Value() || c.NodeTopology == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
		if err == nil && selector.Matches(labels.Set(node.Labels)) {
			return c, 0, nil
		}
	}
	return nil, notEnoughSpace, nil
}

// largestVolume returns the size of the largest volume that can be provisioned; -1 if it is not known.
func largestVolume(c *storagev1.CSIStorageCapacity) int64 {
	switch {
	case c.MaximumVolumeSize != nil:
		return c.MaximumVolumeSize.Value()
	case c.Capacity != nil:
		return c.Capacity.Value()
	}
	return -1
}

// inTopology reports whether a node matches one of the terms; no terms match all nodes.
func inTopology(terms []corev1.TopologySelectorTerm, node *corev1.Node) bool {
	if len(terms) == 0 {
		return true
	}
	for _, t := range terms {
		if len(t.MatchLabelExpressions) > 0 && matchesAll(t.MatchLabelExpressions, node.Labels) {
			return true
		}
	}
	return false
}

func matchesAll(all []corev1.TopologySelectorLabelRequirement, set map[string]string) bool {
	for _, r := range all {
		value, has := set[r.Key]
		if !has || !slices.Contains(r.Values, value) {
			return false
		}
	}
	return true
}
