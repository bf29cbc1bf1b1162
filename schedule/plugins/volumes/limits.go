package volumes

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// NewLimits returns the plugin NodeVolumeLimits, which rejects nodes that cannot attach more volumes of a CSI driver,
// or that lack a driver which requires that. In-tree volumes are not counted.
func NewLimits() framework.Plugin {
	l := &volumeLimits{tooMany: framework.Unschedulable("node(s) exceed max volume count")}
	return framework.Plugin{
		Name: "NodeVolumeLimits",
		Reads: []schema.GroupResource{
			gr.CSINodes, gr.CSIDrivers, gr.PersistentVolumeClaims, gr.PersistentVolumes, gr.StorageClasses, gr.VolumeAttachments,
		},
		QueueingHints: []framework.QueueingHint{
			{On: framework.CSINode, Do: framework.Add},
			{On: framework.CSINode, Do: framework.Update, If: func(_ *corev1.Pod, was, is kind.Object) bool { return limitsGrew(was, is) }},
			{On: framework.AssignedPod, Do: framework.Delete, If: func(_ *corev1.Pod, was, _ kind.Object) bool {
				gone, ok := was.(*corev1.Pod)
				return !ok || framework.HadNode(was) && hasClaims(gone)
			}},
			{On: framework.VolumeClaim, Do: framework.Add, If: isOwnClaim},
			{On: framework.VolumeAttachment, Do: framework.Delete,
				If: func(pod *corev1.Pod, _, _ kind.Object) bool { return hasClaims(pod) }},
		},
		Prepare: l.prepare,
	}
}

type volumeLimits struct{ tooMany *framework.Rejection }

// limits returns how many volumes each CSI driver on a node can attach.
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

func (l *volumeLimits) prepare(s *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
	if !hasClaims(p.Pod) {
		return framework.Skip()
	}
	wanted := map[string]string{}
	out := framework.Prepared{Update: func(*framework.NodeInfo, *framework.PodInfo, int) bool { return true }}
	if err := addAttachable(s.Cluster, p.Pod, true, wanted); err != nil {
		// VolumeBinding rejects the Pod with a better message before this is called.
		r := framework.Failed(err)
		if apierrors.IsNotFound(err) {
			r = framework.Unresolvable(err.Error())
		}
		out.Filter = func(*framework.NodeInfo) *framework.Rejection { return r }
		return out
	}
	if len(wanted) == 0 {
		return out
	}
	attached := attachedVolumes(s.Cluster)
	missing := map[string]*framework.Rejection{} // by driver
	for _, driver := range wanted {
		if o, found := s.Cluster.Get(gr.CSIDrivers, "", driver); found &&
			ptr.Deref(o.(*storagev1.CSIDriver).Spec.PreventPodSchedulingIfMissing, false) {
			missing[driver] = framework.Unschedulable(driver + " CSI driver is not installed on the node")
		}
	}
	out.Filter = func(n *framework.NodeInfo) *framework.Rejection {
		node := getCSINode(s.Cluster, n.Name())
		for driver, r := range missing {
			if !hasDriver(node, driver) {
				return r
			}
		}
		return l.filter(s.Cluster, n, wanted, limits(node), attached[n.Name()])
	}
	return out
}

func hasDriver(node *storagev1.CSINode, driver string) bool {
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

// filter counts the volumes of each driver: those of the Pods on the node, those that are attached, and the new ones.
func (l *volumeLimits) filter(c framework.Cluster, n *framework.NodeInfo, wanted map[string]string, limit map[string]int,
	attached map[string]string) *framework.Rejection {
	if len(limit) == 0 {
		return nil
	}
	used := map[string]string{}
	for _, q := range n.Pods {
		if err := addAttachable(c, q.Pod, false, used); err != nil {
			return framework.Failed(err)
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
			return l.tooMany
		}
	}
	return nil
}

// addAttachable adds the CSI volumes of a Pod with their drivers to into. With mustExist, a claim that does not exist
// is an error.
func addAttachable(c framework.Cluster, pod *corev1.Pod, mustExist bool, into map[string]string) error {
	for i := range pod.Spec.Volumes {
		name, own := claimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, err := getClaim(c, pod.Namespace, name)
		if err != nil {
			if mustExist {
				return fmt.Errorf("looking up PVC %s/%s: %w", pod.Namespace, name, err)
			}
			continue
		}
		if own {
			if err := checkOwner(pod, claim); err != nil {
				return err
			}
		}
		if driver, handle := driverOf(c, claim); driver != "" && handle != "" {
			into[driver+"/"+handle] = driver
		}
	}
	return nil
}

// driverOf returns the CSI driver of the volume of a claim, and the volume's handle. For a volume that is not
// provisioned yet, it returns a unique handle.
func driverOf(c framework.Cluster, claim *corev1.PersistentVolumeClaim) (driver, handle string) {
	if claim.Spec.VolumeName != "" {
		if v, err := getVolume(c, claim.Spec.VolumeName); err == nil {
			if v.Spec.CSI == nil {
				return "", ""
			}
			return v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle
		}
	}
	class, err := getClass(c, storageClassOf(claim))
	if err != nil {
		return "", ""
	}
	return class.Provisioner, "\x00" + claim.Namespace + "/" + claim.Name
}

// attachedVolumes returns the volumes that are attached to each node.
func attachedVolumes(c framework.Cluster) map[string]map[string]string {
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
