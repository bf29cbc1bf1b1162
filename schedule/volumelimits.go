package schedule

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// VolumeLimits keeps pods off nodes that cannot attach more volumes of a driver, or lack a driver that asks for it. Volumes
// of the plugins that were once built in do not count; they name no driver.
func VolumeLimits() Plugin {
	l := &volumeLimits{full: No("node(s) exceed max volume count")}
	return Plugin{
		Name: "NodeVolumeLimits",
		Reads: []schema.GroupResource{
			gr.CSINodes, gr.CSIDrivers, gr.PersistentVolumeClaims, gr.PersistentVolumes, gr.StorageClasses, gr.VolumeAttachments,
		},
		Wakes: []Wake{
			{On: CSINode, Do: Add},
			{On: CSINode, Do: Update, If: func(_ *corev1.Pod, was, is kind.Object) bool { return limitsGrew(was, is) }},
			{On: AssignedPod, Do: Delete, If: func(_ *corev1.Pod, was, _ kind.Object) bool {
				gone, ok := was.(*corev1.Pod)
				return !ok || hadNode(was) && hasClaims(gone)
			}},
			{On: VolumeClaim, Do: Add, If: wantsClaim},
			{On: VolumeAttachment, Do: Delete, If: func(pod *corev1.Pod, _, _ kind.Object) bool { return hasClaims(pod) }},
		},
		Prepare: l.prepare,
	}
}

type volumeLimits struct{ full *Verdict }

// limits are the numbers of volumes that the drivers on a node can attach.
func limits(node *storagev1.CSINode) map[string]int {
	out := map[string]int{}
	if node == nil {
		return out
	}
	for _, d := range node.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			out[d.Name] = int(*d.Allocatable.Count)
		}
	}
	return out
}

func limitsGrew(was, is kind.Object) bool {
	before := limits(was.(*storagev1.CSINode))
	for driver, n := range limits(is.(*storagev1.CSINode)) {
		if n > before[driver] {
			return true
		}
	}
	return false
}

func (l *volumeLimits) prepare(s *Snapshot, p *PodInfo) Prepared {
	if !hasClaims(p.Pod) {
		return Silent()
	}
	wanted := map[string]string{}
	out := Prepared{Update: func(*NodeInfo, *PodInfo, int) bool { return true }}
	if err := attachable(s.Cluster, p.Pod, true, wanted); err != nil {
		// Another plugin says it better, before nodes are looked at.
		v := Failed(err)
		if apierrors.IsNotFound(err) {
			v = NotEver(err.Error())
		}
		out.Filter = func(*NodeInfo) *Verdict { return v }
		return out
	}
	if len(wanted) == 0 {
		return out
	}
	attached := attachments(s.Cluster)
	missing := map[string]*Verdict{} // by driver
	for _, driver := range wanted {
		if o, found := s.Cluster.Get(gr.CSIDrivers, "", driver); found && orElse(o.(*storagev1.CSIDriver).Spec.PreventPodSchedulingIfMissing, false) {
			missing[driver] = No(driver + " CSI driver is not installed on the node")
		}
	}
	out.Filter = func(n *NodeInfo) *Verdict {
		node := getCSINode(s.Cluster, n.Name())
		for driver, v := range missing {
			if !installed(node, driver) {
				return v
			}
		}
		return l.filter(s.Cluster, n, wanted, limits(node), attached[n.Name()])
	}
	return out
}

func installed(node *storagev1.CSINode, driver string) bool {
	if node == nil {
		return false
	}
	for _, d := range node.Spec.Drivers {
		if d.Name == driver {
			return true
		}
	}
	return false
}

// filter counts the volumes of each driver: those of the pods there, those that are attached for others, and the new ones.
func (l *volumeLimits) filter(c Cluster, n *NodeInfo, wanted map[string]string, limit map[string]int, attached map[string]string) *Verdict {
	if len(limit) == 0 {
		return nil
	}
	used := map[string]string{}
	for _, q := range n.Pods {
		if err := attachable(c, q.Pod, false, used); err != nil {
			return Failed(err)
		}
	}
	maps.Copy(used, attached)
	count := map[string]int{}
	for _, driver := range used {
		count[driver]++
	}
	more := map[string]bool{}
	for id, driver := range wanted {
		if _, there := used[id]; !there {
			count[driver]++
			more[driver] = true
		}
	}
	for driver := range more {
		if most, limited := limit[driver]; limited && count[driver] > most {
			return l.full
		}
	}
	return nil
}

// attachable adds the volumes of a pod, with their drivers. A claim that is not there is an error for a new pod only.
func attachable(c Cluster, pod *corev1.Pod, fresh bool, into map[string]string) error {
	for i := range pod.Spec.Volumes {
		name, own := claimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, err := getClaim(c, pod.Namespace, name)
		if err != nil {
			if fresh {
				return fmt.Errorf("looking up PVC %s/%s: %w", pod.Namespace, name, err)
			}
			continue
		}
		if own {
			if err := foreign(pod, claim); err != nil {
				return err
			}
		}
		if driver, handle := driverOf(c, claim); driver != "" && handle != "" {
			into[driver+"/"+handle] = driver
		}
	}
	return nil
}

// driverOf is the driver of the volume behind a claim with the volume's name for it. One that is yet to be made gets a name
// that no other has.
func driverOf(c Cluster, claim *corev1.PersistentVolumeClaim) (driver, handle string) {
	if claim.Spec.VolumeName != "" {
		if v, err := getVolume(c, claim.Spec.VolumeName); err == nil {
			if v.Spec.CSI == nil {
				return "", ""
			}
			return v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle
		}
	}
	class, err := getClass(c, classOf(claim))
	if err != nil {
		return "", ""
	}
	return class.Provisioner, "\x00" + claim.Namespace + "/" + claim.Name
}

// attachments are the volumes attached to each node.
func attachments(c Cluster) map[string]map[string]string {
	out := map[string]map[string]string{}
	for o := range c.List(gr.VolumeAttachments, "") {
		a := o.(*storagev1.VolumeAttachment)
		if a.Spec.Attacher == "" || a.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		v, err := getVolume(c, *a.Spec.Source.PersistentVolumeName)
		if err != nil || v.Spec.CSI == nil {
			continue
		}
		if out[a.Spec.NodeName] == nil {
			out[a.Spec.NodeName] = map[string]string{}
		}
		out[a.Spec.NodeName][a.Spec.Attacher+"/"+v.Spec.CSI.VolumeHandle] = a.Spec.Attacher
	}
	return out
}
