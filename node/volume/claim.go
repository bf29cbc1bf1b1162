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

	"proa.dev/kinds/lib/gr"
	"proa.dev/node/fact"
)

// These name annotations and a finalizer of persistent volumes and claims. annotationGroup holds a group that processes
// using the volume must have.
const (
	annotationGroup   = "pv.beta.kubernetes.io/gid"
	annotationOptions = "volume.beta.kubernetes.io/mount-options"
	finalizerClaim    = "kubernetes.io/pvc-protection"
)

// bound is a claim together with the persistent volume that it is bound to.
type bound struct {
	claim    *corev1.PersistentVolumeClaim
	pv       *corev1.PersistentVolume
	readOnly bool
}

// block reports whether containers get the block device and not a file system on it.
func (b *bound) block() bool {
	return b.pv.Spec.VolumeMode != nil && *b.pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// options returns the mount options of the volume.
func (b *bound) options() []string {
	out := slices.Clone(b.pv.Spec.MountOptions)
	if text := b.pv.Annotations[annotationOptions]; text != "" {
		out = append(out, strings.Split(text, ",")...)
	}
	return out
}

// mountClaim mounts the persistent volume that a claim of the Pod is bound to.
func (v *Volumes) mountClaim(ctx context.Context, p *corev1.Pod, vol *corev1.Volume, before *mounted) result {
	b, err := v.resolveClaim(ctx, p, vol)
	if err != nil {
		return result{ready: before, err: err, unknown: true}
	}
	name := b.pv.Name
	m, err := v.mountPersistent(ctx, p, b, before)
	if err == nil {
		m.claim, m.name, m.group = b.claim.Name, name, b.pv.Annotations[annotationGroup]
		m.plugin = pluginOfPersistent(b.pv, true)
	}
	r := resultOf(name, m, err, before)
	r.plugin = pluginOfPersistent(b.pv, false)
	return r
}

func (v *Volumes) mountPersistent(ctx context.Context, p *corev1.Pod, b *bound, before *mounted) (*mounted, error) {
	if before == nil {
		if err := v.checkNodeAffinity(ctx, b.pv); err != nil {
			return nil, &operationError{"MountVolume.NodeAffinity check failed", err}
		}
	}
	name := b.pv.Name
	if !isFileName(name) {
		return nil, errors.New("the name of the volume is not one of a file")
	}
	switch s := &b.pv.Spec.PersistentVolumeSource; {
	case s.CSI != nil:
		return v.mountCSI(ctx, p, b, before)
	case s.Local != nil && b.block():
		return v.localDevice(p, name, s.Local.Path, b.readOnly)
	case s.Local != nil:
		return v.mountLocal(ctx, p, b)
	case s.HostPath != nil && !b.block():
		m, err := hostPath(s.HostPath)
		if err == nil {
			m.readOnly = b.readOnly
		}
		return m, err
	case s.NFS != nil && !b.block():
		return v.mountNFS(ctx, p, name, s.NFS, b.readOnly, b.options())
	}
	return nil, &operationError{"MountVolume.FindPluginBySpec failed", errors.New("no volume plugin matched")}
}

// resolveClaim finds the persistent volume that a claim of the Pod is bound to.
func (v *Volumes) resolveClaim(ctx context.Context, p *corev1.Pod, vol *corev1.Volume) (*bound, error) {
	b, name := &bound{}, p.Name+"-"+vol.Name
	if s := vol.PersistentVolumeClaim; s != nil {
		name, b.readOnly = s.ClaimName, s.ReadOnly
	}
	err := v.lookUpClaim(ctx, p.Namespace, name, b)
	if err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: %w", p.Namespace, name, err)
	}
	if vol.Ephemeral != nil && !metav1.IsControlledBy(b.claim, p) {
		return nil, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", b.claim.Namespace, b.claim.Name, p.Namespace,
			p.Name)
	}
	mode := corev1.PersistentVolumeFilesystem
	if b.block() {
		mode = corev1.PersistentVolumeBlock
	}
	for c := range fact.AllContainers(p) {
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

func (v *Volumes) lookUpClaim(ctx context.Context, namespace, name string, b *bound) error {
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

// checkNodeAffinity checks whether the node affinity of a volume allows this node.
func (v *Volumes) checkNodeAffinity(ctx context.Context, pv *corev1.PersistentVolume) error {
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

// Groups returns the supplemental groups that the volumes of a Pod require, beside those of its spec. They are known
// once Mount has returned.
func (v *Volumes) Groups(p *corev1.Pod) (out []int64) {
	k := v.find(p.UID)
	if k == nil {
		return nil
	}
	_, ready, _ := k.current()
	for _, m := range ready {
		if gid, ok := extraGroup(p, m.group); ok && !slices.Contains(out, gid) {
			out = append(out, gid)
		}
	}
	slices.Sort(out)
	return out
}

// VolumeOf returns the name of the persistent volume that a claim is bound to, if a Pod of this node has it mounted;
// empty otherwise.
func (v *Volumes) VolumeOf(_ context.Context, namespace, claim string) string {
	v.mu.Lock()
	all := slices.Collect(maps.Values(v.pods))
	v.mu.Unlock()
	for _, k := range all {
		p, ready, _ := k.current()
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
