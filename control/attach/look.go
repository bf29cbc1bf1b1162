package attach

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
	"proa.dev/kinds/gr"
)

// memory is what is remembered of nodes. Who starts without it waits longer before using force, and says some things again.
type memory struct {
	mu    sync.Mutex // guards what follows
	nodes map[string]recall
}

type recall struct {
	since map[corev1.UniqueVolumeName]time.Time
	inUse []corev1.UniqueVolumeName
	said  map[string]bool
}

func newMemory() *memory { return &memory{nodes: map[string]recall{}} }

func (m *memory) of(node string) (recall, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.nodes[node]
	return r, ok
}

func (m *memory) keep(node string, r recall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(r.since) == 0 && len(r.inUse) == 0 && len(r.said) == 0 {
		delete(m.nodes, node)
		return
	}
	m.nodes[node] = r
}

// look brings the volumes of a node closer to what its Pods need.
func look(ctx context.Context, c *control.Cluster, name string, m *memory, config Config) (time.Duration, error) {
	was, known := m.of(name)
	s := scene{name: name, since: was.since, gentle: config.Gentle, have: map[corev1.UniqueVolumeName]*storagev1.VolumeAttachment{}}
	next := recall{}
	if n, found := control.Get[*corev1.Node](c, gr.Nodes, "", name); found {
		s.node, s.inUse, next.inUse = n, n.Status.VolumesInUse, n.Status.VolumesInUse
	} else {
		s.inUse, s.unsure, next.inUse = was.inUse, !known, was.inUse
	}
	for a := range control.By[*storagev1.VolumeAttachment](c, gr.VolumeAttachments, byAttachedNode(), name) {
		unique, ours := identify(c, a, s.node)
		if ours {
			s.have[unique] = a
		}
		if ours && strings.HasPrefix(string(unique), unknown) { // so nobody can say that it is not mounted
			s.inUse = append(slices.Clone(s.inUse), unique)
		}
	}
	s.wishes = wishes(c, name)
	p := decide(s, time.Now())
	next.since, next.said = p.idle, map[string]bool{}
	for _, e := range p.say {
		key := string(e.pod.UID) + " " + e.text
		if !was.said[key] {
			c.Event(e.pod, e.kind, e.reason, "%s", e.text)
		}
		next.said[key] = true
	}
	if s.node == nil && len(s.have) == 0 && len(s.wishes) == 0 {
		next = recall{}
	}
	m.keep(name, next)
	return p.again, apply(ctx, c, s.node, p)
}

// identify says which volume an attachment is of, if it was made here: others may make them too.
func identify(c *control.Cluster, a *storagev1.VolumeAttachment, node *corev1.Node) (corev1.UniqueVolumeName, bool) {
	if v, found := volumeOf(c, a); found && v.Spec.CSI != nil {
		csi := v.Spec.CSI
		return uniqueName(csi.Driver, csi.VolumeHandle), a.Name == attachmentName(csi.VolumeHandle, csi.Driver, a.Spec.NodeName)
	}
	if node == nil { // nobody is left who knows the volume; the name says whose the attachment is
		_, known := volumeOf(c, a)
		sum, ours := strings.CutPrefix(a.Name, "csi-")
		return corev1.UniqueVolumeName(unknown + a.Name), ours && !known && len(sum) == 64
	}
	for _, v := range node.Status.VolumesAttached { // the volume is gone; the node still knows it
		driver, handle, ok := split(v.Name)
		if ok && a.Name == attachmentName(handle, driver, a.Spec.NodeName) {
			return v.Name, true
		}
	}
	return "", false
}

// unknown is how the names begin that are given here to volumes of which nothing is known any more.
const unknown = "unknown/"

// volumeOf is the volume that an attachment is of.
func volumeOf(c *control.Cluster, a *storagev1.VolumeAttachment) (*corev1.PersistentVolume, bool) {
	if a.Spec.Source.PersistentVolumeName == nil {
		return nil, false
	}
	return control.Get[*corev1.PersistentVolume](c, gr.PersistentVolumes, "", *a.Spec.Source.PersistentVolumeName)
}

// wishes are the volumes that the Pods of a node use and that must be attached.
func wishes(c *control.Cluster, node string) []wish {
	var out []wish
	for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByNode(), node) {
		if ended(p) {
			continue
		}
		for _, v := range volumesOf(c, p) {
			csi := v.Spec.CSI
			name := uniqueName(csi.Driver, csi.VolumeHandle)
			at := slices.IndexFunc(out, func(w wish) bool { return w.name == name })
			if at < 0 {
				at = len(out)
				out = append(out, wish{name: name, volume: v.Name, driver: csi.Driver, handle: csi.VolumeHandle, shared: shared(v)})
				out[at].elsewhere, out[at].users = holders(c, v, node)
			}
			if !slices.Contains(out[at].pods, p) {
				out[at].pods = append(out[at].pods, p)
			}
		}
	}
	return out
}

// volumesOf are the volumes of drivers that a Pod uses, without those that need no attaching.
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

// shared says that several nodes may have a volume at once.
func shared(v *corev1.PersistentVolume) bool {
	return len(v.Spec.AccessModes) == 0 || slices.Contains(v.Spec.AccessModes, corev1.ReadWriteMany) || slices.Contains(v.Spec.AccessModes, corev1.ReadOnlyMany)
}

// holders are the other nodes that a volume is attached to, and the Pods that use it there.
func holders(c *control.Cluster, v *corev1.PersistentVolume, node string) (nodes []string, users []*corev1.Pod) {
	for a := range control.By[*storagev1.VolumeAttachment](c, gr.VolumeAttachments, byAttachedVolume(), v.Name) {
		if a.Spec.NodeName != node {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	if len(nodes) == 0 || v.Spec.ClaimRef == nil {
		return nodes, nil
	}
	for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByClaim(), v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name) {
		if slices.Contains(nodes, p.Spec.NodeName) && !ended(p) {
			users = append(users, p)
		}
	}
	return nodes, users
}

// apply does what was decided. A node is told first that a volume is no longer attached, so that it does not begin to mount what
// is about to go; the resourceVersion sees to it that it has not begun meanwhile.
func apply(ctx context.Context, c *control.Cluster, node *corev1.Node, p plan) error {
	var failed []error
	if node != nil && (p.report != nil || len(p.careful) > 0) {
		held, err := report(ctx, c, node, p)
		if err != nil {
			return err
		}
		if held { // the view was behind; the node has mounted it again
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

// report tells a node what is attached. held says that it uses what was to be detached.
func report(ctx context.Context, c *control.Cluster, node *corev1.Node, p plan) (held bool, err error) {
	o, err := c.Get(ctx, gr.Nodes, "", node.Name, "")
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	now := o.(*corev1.Node)
	for _, name := range p.careful {
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
