package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// NewZone returns the plugin VolumeZone, which rejects nodes outside of the zones and regions in the labels of the
// Pod's volumes. Volumes had such labels before they had node affinity.
func NewZone() framework.Plugin {
	z := &volumeZone{wrongZone: framework.Unresolvable("node(s) had no available volume zone")}
	return framework.Plugin{
		Name:  "VolumeZone",
		Reads: []schema.GroupResource{gr.PersistentVolumeClaims, gr.PersistentVolumes, gr.StorageClasses},
		QueueingHints: []framework.QueueingHint{
			{On: framework.StorageClass, Do: framework.Add, If: func(_ *corev1.Pod, _, is kind.Object) bool {
				mode := is.(*storagev1.StorageClass).VolumeBindingMode
				return mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer
			}},
			{On: framework.NodeResource, Do: framework.Add | framework.NodeLabel},
			{On: framework.VolumeClaim, Do: framework.Add | framework.Update, If: isOwnClaim},
			{On: framework.PersistentVolume, Do: framework.Add | framework.Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return was == nil || !maps.EqualFunc(zonesOf(was), zonesOf(is), sets.Set[string].Equal)
			}},
		},
		Prepare: z.prepare,
	}
}

type volumeZone struct{ wrongZone *framework.Rejection }

// zoneKeys returns the labels for zones and regions, each with its current name.
func zoneKeys() map[string]string {
	return map[string]string{
		corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		corev1.LabelTopologyZone: corev1.LabelTopologyZone, corev1.LabelTopologyRegion: corev1.LabelTopologyRegion,
	}
}

// zonesOf returns the zones and regions in the labels of a volume. A label may have several values, separated by "__".
func zonesOf(o kind.Object) map[string]sets.Set[string] {
	out := map[string]sets.Set[string]{}
	for key := range zoneKeys() {
		value, has := o.GetLabels()[key]
		if !has {
			continue
		}
		zones := sets.New[string]()
		for z := range strings.SplitSeq(value, "__") {
			zones.Insert(strings.TrimSpace(z))
		}
		if !zones.Has("") {
			out[key] = zones
		}
	}
	return out
}

func (z *volumeZone) prepare(s *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
	if len(p.Claims) == 0 {
		return framework.Skip()
	}
	var all []map[string]sets.Set[string]
	for _, v := range p.Pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		zones, rejection := claimZones(s.Cluster, p.Pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if rejection != nil {
			return framework.Prepared{Reject: rejection}
		}
		if len(zones) > 0 {
			all = append(all, zones)
		}
	}
	out := framework.Prepared{Update: func(*framework.NodeInfo, *framework.PodInfo, int) bool { return true }}
	if len(all) == 0 {
		return out
	}
	now := zoneKeys()
	out.Filter = func(n *framework.NodeInfo) *framework.Rejection {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(key string) bool { _, has := n.Node.Labels[key]; return has }) {
			return nil // the node has no zone labels
		}
		for _, zones := range all {
			for key, of := range zones {
				value, has := n.Node.Labels[key]
				if !has {
					value, has = n.Node.Labels[now[key]]
				}
				if !has || !of.Has(value) {
					return z.wrongZone
				}
			}
		}
		return nil
	}
	return out
}

// claimZones returns the zones of the volume of a claim; none if the claim waits for its first consumer.
func claimZones(c framework.Cluster, namespace, name string) (map[string]sets.Set[string], *framework.Rejection) {
	if name == "" {
		return nil, framework.Unresolvable("PersistentVolumeClaim had no name")
	}
	claim, err := getClaim(c, namespace, name)
	if err != nil {
		return nil, framework.Unresolvable(err.Error())
	}
	if claim.Spec.VolumeName != "" {
		v, err := getVolume(c, claim.Spec.VolumeName)
		if err != nil {
			return nil, framework.Unresolvable(err.Error())
		}
		return zonesOf(v), nil
	}
	className := storageClassOf(claim)
	if className == "" {
		return nil, framework.Unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
	}
	class, err := getClass(c, className)
	switch {
	case err != nil:
		return nil, framework.Unresolvable(err.Error())
	case class.VolumeBindingMode == nil:
		return nil, framework.Unresolvable(fmt.Sprintf("VolumeBindingMode not set for StorageClass %q", className))
	case *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return nil, framework.Unresolvable("PersistentVolume had no name")
	}
	return nil, nil
}
