package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/gr"
)

// annotationGroup names a group that processes using a volume must have.
const (
	annotationGroup   = "pv.beta.kubernetes.io/gid"
	annotationOptions = "volume.beta.kubernetes.io/mount-options"
	finalizerClaim    = "kubernetes.io/pvc-protection"
)

// bound is a volume that a claim stands for.
type bound struct {
	claim    *corev1.PersistentVolumeClaim
	pv       *corev1.PersistentVolume
	readOnly bool
}

// block says that containers get the device, not a file system on it.
func (b *bound) block() bool {
	return b.pv.Spec.VolumeMode != nil && *b.pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// options are those with which the volume is to be mounted.
func (b *bound) options() []string {
	out := slices.Clone(b.pv.Spec.MountOptions)
	if text := b.pv.Annotations[annotationOptions]; text != "" {
		out = append(out, strings.Split(text, ",")...)
	}
	return out
}

// claimed makes the volume ready that a claim of the Pod is bound to.
func (v *Volumes) claimed(ctx context.Context, p *corev1.Pod, vol *corev1.Volume, before *mounted) result {
	b, err := v.resolve(ctx, p, vol)
	if err != nil {
		return result{ready: before, err: err, unknown: true}
	}
	name := b.pv.Name
	m, err := v.persistent(ctx, p, b, before)
	if err == nil {
		m.claim, m.name, m.group = b.claim.Name, name, b.pv.Annotations[annotationGroup]
	}
	return finish(name, m, err, before)
}

func (v *Volumes) persistent(ctx context.Context, p *corev1.Pod, b *bound, before *mounted) (*mounted, error) {
	if before == nil {
		if err := v.mayBeHere(ctx, b.pv); err != nil {
			return nil, &step{"MountVolume.NodeAffinity check failed", err}
		}
	}
	name := b.pv.Name
	if !plain(name) {
		return nil, errors.New("the name of the volume is not one of a file")
	}
	switch s := &b.pv.Spec.PersistentVolumeSource; {
	case s.CSI != nil:
		return v.driven(ctx, p, b, before)
	case s.Local != nil && b.block():
		return v.localDevice(p, name, s.Local.Path, b.readOnly)
	case s.Local != nil:
		return v.local(ctx, p, b)
	case s.HostPath != nil && !b.block():
		m, err := hostPath(s.HostPath)
		if err == nil {
			m.readOnly = b.readOnly
		}
		return m, err
	case s.NFS != nil && !b.block():
		return v.nfs(ctx, p, name, s.NFS, b.readOnly, b.options())
	}
	return nil, &step{"MountVolume.FindPluginBySpec failed", errors.New("no volume plugin matched")}
}

// resolve finds the volume that a claim is bound to.
func (v *Volumes) resolve(ctx context.Context, p *corev1.Pod, vol *corev1.Volume) (*bound, error) {
	b, name := &bound{}, p.Name+"-"+vol.Name
	if s := vol.PersistentVolumeClaim; s != nil {
		name, b.readOnly = s.ClaimName, s.ReadOnly
	}
	err := v.lookUp(ctx, p.Namespace, name, b)
	if err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: %w", p.Namespace, name, err)
	}
	if vol.Ephemeral != nil && !metav1.IsControlledBy(b.claim, p) {
		return nil, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", b.claim.Namespace, b.claim.Name, p.Namespace, p.Name)
	}
	mode := corev1.PersistentVolumeFilesystem
	if b.block() {
		mode = corev1.PersistentVolumeBlock
	}
	for c := range containers(p) {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name == vol.Name && b.block() {
				return nil, fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", vol.Name, mode)
			}
		}
		for i := range c.VolumeDevices {
			if c.VolumeDevices[i].Name == vol.Name && !b.block() {
				return nil, fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", vol.Name, mode)
			}
		}
	}
	return b, nil
}

func (v *Volumes) lookUp(ctx context.Context, namespace, name string, b *bound) error {
	o, err := v.Client.Get(ctx, gr.PersistentVolumeClaims, namespace, name, "")
	if err != nil {
		return fmt.Errorf("failed to fetch PVC from API server: %w", err)
	}
	c, ok := o.(*corev1.PersistentVolumeClaim)
	switch {
	case !ok:
		return fmt.Errorf("failed to fetch PVC from API server: it is a %T", o)
	case c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, finalizerClaim):
		return errors.New("PVC is being deleted")
	case c.Status.Phase != corev1.ClaimBound:
		return errors.New("PVC is not bound")
	case c.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	o, err = v.Client.Get(ctx, gr.PersistentVolumes, "", c.Spec.VolumeName, "")
	if err != nil {
		return fmt.Errorf("failed to fetch PV %s from API server: %w", c.Spec.VolumeName, err)
	}
	pv, ok := o.(*corev1.PersistentVolume)
	switch {
	case !ok:
		return fmt.Errorf("failed to fetch PV %s from API server: it is a %T", c.Spec.VolumeName, o)
	case pv.Spec.ClaimRef == nil:
		return fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)
	case pv.Spec.ClaimRef.UID != c.UID:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name, pv.Spec.ClaimRef.UID, c.UID)
	}
	b.claim, b.pv = c, pv
	return nil
}

// mayBeHere says whether a volume can be reached from this node.
func (v *Volumes) mayBeHere(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	o, err := v.Client.Get(ctx, gr.Nodes, "", v.Node, "")
	if err != nil {
		return err
	}
	node, ok := o.(*corev1.Node)
	if !ok {
		return fmt.Errorf("the node is a %T", o)
	}
	terms, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	if err != nil {
		return err
	}
	if !terms.Match(node) {
		return errors.New("no matching NodeSelectorTerms")
	}
	return nil
}

// Groups are the groups that the processes of a Pod need because of its volumes, beside those that it names itself. They are
// known when Mount has returned.
func (v *Volumes) Groups(p *corev1.Pod) (out []int64) {
	k := v.known(p.UID)
	if k == nil {
		return nil
	}
	_, ready, _ := k.now()
	for _, m := range ready {
		if gid, ok := extraGroup(p, m.group); ok && !slices.Contains(out, gid) {
			out = append(out, gid)
		}
	}
	slices.Sort(out)
	return out
}

// VolumeOf is the name of the volume that a claim is bound to, if a Pod of this node has it mounted; empty otherwise.
func (v *Volumes) VolumeOf(_ context.Context, namespace, claim string) string {
	v.mu.Lock()
	all := slices.Collect(maps.Values(v.pods))
	v.mu.Unlock()
	for _, k := range all {
		p, ready, _ := k.now()
		if p.Namespace != namespace {
			continue
		}
		for _, m := range ready {
			if m.claim == claim && claim != "" {
				return m.name
			}
		}
	}
	return ""
}
