package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// VolumeZone lets a pod only into the zones that the labels of its volumes name, which is how old volumes say where they are.
func VolumeZone() Plugin {
	z := &volumeZone{elsewhere: NotEver("node(s) had no available volume zone")}
	return Plugin{
		Name:  "VolumeZone",
		Reads: []schema.GroupResource{gr.PersistentVolumeClaims, gr.PersistentVolumes, gr.StorageClasses},
		Wakes: []Wake{
			{On: StorageClass, Do: Add, If: func(_ *corev1.Pod, _, is kind.Object) bool {
				mode := is.(*storagev1.StorageClass).VolumeBindingMode
				return mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer
			}},
			{On: NodeResource, Do: Add | NodeLabel},
			{On: VolumeClaim, Do: Add | Update, If: wantsClaim},
			{On: PersistentVolume, Do: Add | Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return was == nil || !maps.EqualFunc(zonesOf(was), zonesOf(is), sets.Set[string].Equal)
			}},
		},
		Prepare: z.prepare,
	}
}

type volumeZone struct{ elsewhere *Verdict }

// zoneKeys are the labels that say where something is, the old ones with what they are called now.
func zoneKeys() map[string]string {
	return map[string]string{
		corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		corev1.LabelTopologyZone: corev1.LabelTopologyZone, corev1.LabelTopologyRegion: corev1.LabelTopologyRegion,
	}
}

// zonesOf are the zones and regions that the labels of a volume name. There may be several, with "__" between them.
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

func (z *volumeZone) prepare(s *Snapshot, p *PodInfo) Prepared {
	if len(p.Claims) == 0 {
		return Silent()
	}
	var all []map[string]sets.Set[string]
	for _, v := range p.Pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		zones, verdict := claimZones(s.Cluster, p.Pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if verdict != nil {
			return Prepared{Reject: verdict}
		}
		if len(zones) > 0 {
			all = append(all, zones)
		}
	}
	out := Prepared{Update: func(*NodeInfo, *PodInfo, int) bool { return true }}
	if len(all) == 0 {
		return out
	}
	now := zoneKeys()
	out.Filter = func(n *NodeInfo) *Verdict {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(key string) bool { _, has := n.Node.Labels[key]; return has }) {
			return nil // it knows of no zones
		}
		for _, zones := range all {
			for key, of := range zones {
				value, has := n.Node.Labels[key]
				if !has {
					value, has = n.Node.Labels[now[key]]
				}
				if !has || !of.Has(value) {
					return z.elsewhere
				}
			}
		}
		return nil
	}
	return out
}

// claimZones are the zones of the volume behind a claim. One that waits for its pod has none yet.
func claimZones(c Cluster, namespace, name string) (map[string]sets.Set[string], *Verdict) {
	if name == "" {
		return nil, NotEver("PersistentVolumeClaim had no name")
	}
	claim, err := getClaim(c, namespace, name)
	if err != nil {
		return nil, NotEver(err.Error())
	}
	if claim.Spec.VolumeName != "" {
		v, err := getVolume(c, claim.Spec.VolumeName)
		if err != nil {
			return nil, NotEver(err.Error())
		}
		return zonesOf(v), nil
	}
	className := classOf(claim)
	if className == "" {
		return nil, NotEver("PersistentVolumeClaim had no pv name and storageClass name")
	}
	class, err := getClass(c, className)
	switch {
	case err != nil:
		return nil, NotEver(err.Error())
	case class.VolumeBindingMode == nil:
		return nil, NotEver(fmt.Sprintf("VolumeBindingMode not set for StorageClass %q", className))
	case *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return nil, NotEver("PersistentVolume had no name")
	}
	return nil, nil
}
