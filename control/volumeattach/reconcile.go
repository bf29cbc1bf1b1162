package volumeattach

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// memory remembers what is known about nodes between reconciles. It is lost with the process: then forced detaching happens
// later, and some Events are recorded again.
type memory struct {
	mu    sync.Mutex // guards what follows
	nodes map[string]nodeMemory
}

type nodeMemory struct {
	unusedSince    map[corev1.UniqueVolumeName]time.Time
	inUse          []corev1.UniqueVolumeName
	recordedEvents map[string]bool
}

func newMemory() *memory { return &memory{nodes: map[string]nodeMemory{}} }

func (m *memory) of(node string) (nodeMemory, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.nodes[node]
	return r, ok
}

func (m *memory) keep(node string, r nodeMemory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(r.unusedSince) == 0 && len(r.inUse) == 0 && len(r.recordedEvents) == 0 {
		delete(m.nodes, node)
		return
	}
	m.nodes[node] = r
}

// reconcileNode reconciles the volumes of a node.
func reconcileNode(ctx context.Context, c *control.Cluster, name string, m *memory, config Config) (time.Duration, error) {
	was, known := m.of(name)
	s := nodeState{name: name, unusedSince: was.unusedSince, noForcedDetach: config.NoForcedDetach,
		attachments: map[corev1.UniqueVolumeName]*storagev1.VolumeAttachment{}}
	next := nodeMemory{}
	if n, found := control.Get[*corev1.Node](c, gr.Nodes, "", name); found {
		s.node, s.inUse, next.inUse = n, n.Status.VolumesInUse, n.Status.VolumesInUse
	} else {
		s.inUse, s.inUseUnknown, next.inUse = was.inUse, !known, was.inUse
	}
	for a := range control.By[*storagev1.VolumeAttachment](c, gr.VolumeAttachments, byAttachedNode(), name) {
		unique, isOwn := volumeName(c, a, s.node)
		if isOwn {
			s.attachments[unique] = a
		}
		if isOwn && strings.HasPrefix(string(unique), unknownPrefix) { // whether it is mounted is not known
			s.inUse = append(slices.Clone(s.inUse), unique)
		}
	}
	s.wanted = wantedVolumes(c, name)
	p := decide(s, time.Now())
	next.unusedSince, next.recordedEvents = p.unusedSince, map[string]bool{}
	for _, e := range p.events {
		key := string(e.pod.UID) + " " + e.text
		if !was.recordedEvents[key] {
			c.Event(e.pod, e.kind, e.reason, "%s", e.text)
		}
		next.recordedEvents[key] = true
	}
	if s.node == nil && len(s.attachments) == 0 && len(s.wanted) == 0 {
		next = nodeMemory{}
	}
	m.keep(name, next)
	return p.again, apply(ctx, c, s.node, p)
}

// volumeName returns the volume of an attachment, and whether this controller created the attachment.
func volumeName(c *control.Cluster, a *storagev1.VolumeAttachment, node *corev1.Node) (corev1.UniqueVolumeName, bool) {
	if v, found := volumeOf(c, a); found && v.Spec.CSI != nil {
		csi := v.Spec.CSI
		return uniqueName(csi.Driver, csi.VolumeHandle), a.Name == attachmentName(csi.VolumeHandle, csi.Driver, a.Spec.NodeName)
	}
	if node == nil { // volume and node were deleted; the form of the name tells whose attachment it is
		_, known := volumeOf(c, a)
		sum, hasPrefix := strings.CutPrefix(a.Name, "csi-")
		return corev1.UniqueVolumeName(unknownPrefix + a.Name), hasPrefix && !known && len(sum) == 64
	}
	for _, v := range node.Status.VolumesAttached { // the volume was deleted, but the status of the node still has it
		driver, handle, ok := splitName(v.Name)
		if ok && a.Name == attachmentName(handle, driver, a.Spec.NodeName) {
			return v.Name, true
		}
	}
	return "", false
}

// unknownPrefix is the prefix of the names that are used here for deleted volumes.
const unknownPrefix = "unknown/"

// volumeOf returns the volume of an attachment.
func volumeOf(c *control.Cluster, a *storagev1.VolumeAttachment) (*corev1.PersistentVolume, bool) {
	if a.Spec.Source.PersistentVolumeName == nil {
		return nil, false
	}
	return control.Get[*corev1.PersistentVolume](c, gr.PersistentVolumes, "", *a.Spec.Source.PersistentVolumeName)
}

// wantedVolumes returns the volumes that the Pods of a node use and that must be attached.
func wantedVolumes(c *control.Cluster, node string) []wantedVolume {
	var out []wantedVolume
	for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByNode(), node) {
		if hasEnded(p) {
			continue
		}
		for _, v := range volumesOf(c, p) {
			csi := v.Spec.CSI
			name := uniqueName(csi.Driver, csi.VolumeHandle)
			at := slices.IndexFunc(out, func(w wantedVolume) bool { return w.name == name })
			if at < 0 {
				at = len(out)
				out = append(out, wantedVolume{name: name, volume: v.Name, driver: csi.Driver, handle: csi.VolumeHandle,
					shared: isShared(v)})
				out[at].otherNodes, out[at].otherPods = otherHolders(c, v, node)
			}
			if !slices.Contains(out[at].pods, p) {
				out[at].pods = append(out[at].pods, p)
			}
		}
	}
	return out
}

// volumesOf returns the CSI volumes that a Pod uses and that need to be attached.
func volumesOf(c *control.Cluster, p *corev1.Pod) (out []*corev1.PersistentVolume) {
	for i := range p.Spec.Volumes {
		name, own := "", false
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name, own = p.Name+"-"+v.Name, true
		default:
			continue
		}
		claim, found := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, p.Namespace, name)
		if !found || claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" || own && !metav1.IsControlledBy(claim, p) {
			continue
		}
		v, found := control.Get[*corev1.PersistentVolume](c, gr.PersistentVolumes, "", claim.Spec.VolumeName)
		if !found || v.Spec.CSI == nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
			continue
		}
		driver, found := control.Get[*storagev1.CSIDriver](c, gr.CSIDrivers, "", v.Spec.CSI.Driver)
		if found && driver.Spec.AttachRequired != nil && !*driver.Spec.AttachRequired {
			continue
		}
		out = append(out, v)
	}
	return out
}

// isShared reports whether a volume may be attached to several nodes.
func isShared(v *corev1.PersistentVolume) bool {
	return len(v.Spec.AccessModes) == 0 || slices.Contains(v.Spec.AccessModes, corev1.ReadWriteMany) ||
		slices.Contains(v.Spec.AccessModes, corev1.ReadOnlyMany)
}

// otherHolders returns the other nodes that a volume is attached to, and the Pods that use it there.
func otherHolders(c *control.Cluster, v *corev1.PersistentVolume, node string) (nodes []string, users []*corev1.Pod) {
	for a := range control.By[*storagev1.VolumeAttachment](c, gr.VolumeAttachments, byAttachedVolume(), v.Name) {
		if a.Spec.NodeName != node {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	if len(nodes) == 0 || v.Spec.ClaimRef == nil {
		return nodes, nil
	}
	for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByClaim(), v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name) {
		if slices.Contains(nodes, p.Spec.NodeName) && !hasEnded(p) {
			users = append(users, p)
		}
	}
	return nodes, users
}

// apply makes the writes of a plan. The status of the node is written before volumes are detached, so that the node does not
// mount them; the write conflicts if the node has reported a mount meanwhile.
func apply(ctx context.Context, c *control.Cluster, node *corev1.Node, p plan) error {
	var failed []error
	if node != nil && (p.report != nil || len(p.checkUnmounted) > 0) {
		inUse, err := writeAttached(ctx, c, node, p)
		if err != nil {
			return err
		}
		if inUse { // the view lagged behind: the node has mounted it again
			return errors.New("a volume that is to be detached is still in use by its node")
		}
	}
	for _, a := range p.detach {
		err := c.Delete(ctx, gr.VolumeAttachments, "", a.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, err)
		}
	}
	for _, a := range p.attach {
		if _, err := c.Create(ctx, gr.VolumeAttachments, a); err != nil && !apierrors.IsAlreadyExists(err) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// writeAttached writes the attached volumes into the status of a node. inUse is true if the node uses a volume that was to be
// detached.
func writeAttached(ctx context.Context, c *control.Cluster, node *corev1.Node, p plan) (inUse bool, err error) {
	o, err := c.Get(ctx, gr.Nodes, "", node.Name, "")
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	now := o.(*corev1.Node)
	for _, name := range p.checkUnmounted {
		if slices.Contains(now.Status.VolumesInUse, name) {
			return true, nil
		}
	}
	if p.report == nil {
		return false, nil
	}
	now.Status.VolumesAttached = p.report
	_, err = c.Update(ctx, gr.Nodes, now, "status")
	return false, err
}
