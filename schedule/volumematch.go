package schedule

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/gr"
)

// podVolumes are the claims of a pod, looked up.
type podVolumes struct {
	cluster        Cluster
	bound, waiting []*corev1.PersistentVolumeClaim
	immediate      bool // some claim should have a volume before its pod, and has none
	free           map[string][]*placedVolume
	places         map[string]*placedVolume // of bound claims, by volume
}

// placedVolume is a volume with the nodes it can be reached from, parsed.
type placedVolume struct {
	*corev1.PersistentVolume
	from *nodeaffinity.NodeSelector // nil is everywhere
	err  error
}

func placeVolume(v *corev1.PersistentVolume) *placedVolume {
	out := &placedVolume{PersistentVolume: v}
	if v.Spec.NodeAffinity != nil && v.Spec.NodeAffinity.Required != nil {
		out.from, out.err = nodeaffinity.NewNodeSelector(v.Spec.NodeAffinity.Required)
	}
	return out
}

// reaches says that the volume can be used on a node. It is about labels alone.
func (v *placedVolume) reaches(node *corev1.Node) bool {
	if v.err != nil {
		return false
	}
	return v.from == nil || v.from.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: node.Labels}})
}

func (v *podVolumes) wants(class string) bool {
	_, is := v.free[class]
	return is
}

// size is what a claim asks for.
func size(claim *corev1.PersistentVolumeClaim) *resource.Quantity {
	q := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return &q
}

// plan says what is to be done for the volumes on a node, or why the node will not do.
func (v *podVolumes) plan(node *corev1.Node) (*volumePlan, volumeTrouble, error) {
	var trouble volumeTrouble
	for _, claim := range v.bound {
		at := v.places[claim.Spec.VolumeName]
		if at == nil {
			volume, err := getVolume(v.cluster, claim.Spec.VolumeName)
			if err != nil {
				trouble |= volumeGone
				break
			}
			at = placeVolume(volume)
			v.places[claim.Spec.VolumeName] = at
		}
		if !at.reaches(node) {
			trouble |= wrongPlace
			break
		}
	}
	plan := &volumePlan{}
	var provide []*corev1.PersistentVolumeClaim
	for _, claim := range v.waiting {
		selected, is := claim.Annotations[annSelectedNode]
		if is && selected != node.Name {
			return nil, trouble | nothingToBind, nil
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
		found, err := match(claim, v.free[classOf(claim)], node, chosen)
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
		capacity, t, err := v.provide(claim, node)
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

// match finds a volume for a claim: the one that is set aside for it, or the smallest that is large enough.
func match(claim *corev1.PersistentVolumeClaim, volumes []*placedVolume, node *corev1.Node, taken map[string]bool) (*corev1.PersistentVolume, error) {
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
		mine := isFor(v.PersistentVolume, claim)
		if taken[v.Name] || v.Spec.ClaimRef != nil && !mine || has.Cmp(*size(claim)) < 0 || !sameSort(v.PersistentVolume, claim) {
			continue
		}
		if mine {
			if !v.reaches(node) {
				return nil, nil
			}
			return v.PersistentVolume, nil
		}
		if v.Status.Phase != corev1.VolumeAvailable || !selector.Matches(labels.Set(v.Labels)) || classOfVolume(v.PersistentVolume) != classOf(claim) ||
			!hasModes(v.PersistentVolume, claim) || best != nil && least.Cmp(has) <= 0 || !v.reaches(node) {
			continue
		}
		best, least = v.PersistentVolume, has
	}
	return best, nil
}

// sameSort says that a volume stays, and is of the mode and has the attributes that a claim asks for.
func sameSort(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return v.DeletionTimestamp == nil &&
		orElse(v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == orElse(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) &&
		orElse(v.Spec.VolumeAttributesClassName, "") == orElse(claim.Spec.VolumeAttributesClassName, "")
}

// provide says whether a volume can be made for a claim on a node, and where its storage comes from if that is known.
func (v *podVolumes) provide(claim *corev1.PersistentVolumeClaim, node *corev1.Node) (*storagev1.CSIStorageCapacity, volumeTrouble, error) {
	name := classOf(claim)
	if name == "" {
		return nil, 0, fmt.Errorf("no class for claim %q", claim.Namespace+"/"+claim.Name)
	}
	class, err := getClass(v.cluster, name)
	if err != nil {
		return nil, 0, fmt.Errorf("failed to find storage class %q", name)
	}
	if class.Provisioner == "" || class.Provisioner == noProvisioner || !inTopology(class.AllowedTopologies, node) {
		return nil, nothingToBind, nil
	}
	want, asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	o, found := v.cluster.Get(gr.CSIDrivers, "", class.Provisioner)
	if !asked || !found || !orElse(o.(*storagev1.CSIDriver).Spec.StorageCapacity, false) {
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
	return nil, noSpace, nil
}

// largestVolume is the size of the largest volume that can be made, -1 if it is not known.
func largestVolume(c *storagev1.CSIStorageCapacity) int64 {
	switch {
	case c.MaximumVolumeSize != nil:
		return c.MaximumVolumeSize.Value()
	case c.Capacity != nil:
		return c.Capacity.Value()
	}
	return -1
}

// inTopology says that a node is in one of the topologies; none stands for all.
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
