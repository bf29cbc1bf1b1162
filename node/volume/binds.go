package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
	"proa.dev/node/subpath"
)

// Binds returns the mounts and devices of a container, of volumes that Mount has made ready.
func (v *Volumes) Binds(ctx context.Context, p *corev1.Pod, c *corev1.Container, expand func(string) (string, error)) ([]*cri.Mount,
	[]*cri.Device, error) {
	ready := map[string]*mounted{}
	if k := v.find(p.UID); k != nil {
		_, ready, _ = k.current()
	}
	var binds []*cri.Mount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		vol := ready[m.Name]
		if vol == nil || vol.device != "" {
			return nil, nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
		}
		b, err := v.bind(ctx, p, c, i, vol, expand)
		if err != nil {
			return nil, nil, err
		}
		binds = append(binds, b)
	}
	var devices []*cri.Device
	for _, d := range c.VolumeDevices {
		if !path.IsAbs(d.DevicePath) {
			return nil, nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", d.DevicePath)
		}
		vol := ready[d.Name]
		if vol == nil || vol.device == "" {
			return nil, nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Name)
		}
		may := "mrw"
		if vol.readOnly {
			may = "r"
		}
		devices = append(devices, &cri.Device{HostPath: vol.device, ContainerPath: d.DevicePath, Permissions: may})
	}
	return binds, devices, nil
}

// bind returns one mount of a container.
func (v *Volumes) bind(ctx context.Context, p *corev1.Pod, c *corev1.Container, index int, vol *mounted,
	expand func(string) (string, error)) (*cri.Mount, error) {
	m := &c.VolumeMounts[index]
	sub := m.SubPath
	if m.SubPathExpr != "" {
		var err error
		if sub, err = expand(m.SubPathExpr); err != nil {
			return nil, err
		}
	}
	if err := subpath.CheckPath(sub); err != nil {
		return nil, err
	}
	propagation, err := propagationOf(m.MountPropagation)
	if err != nil {
		return nil, err
	}
	recursive, err := recursiveReadOnly(m, v.Recursive != nil && v.Recursive(p))
	if err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	out := &cri.Mount{
		ContainerPath: m.MountPath, HostPath: vol.path, Readonly: m.ReadOnly || vol.readOnly, RecursiveReadOnly: recursive,
		SelinuxRelabel: vol.relabel, Propagation: propagation,
	}
	if !path.IsAbs(m.MountPath) {
		out.ContainerPath = "/" + m.MountPath
	}
	if vol.image != nil {
		out.ImageSubPath = sub
		out.Image, err = v.ensureImage(ctx, p, m.Name, vol.image)
		return out, err
	}
	if sub == "" {
		return out, nil
	}
	out.HostPath = filepath.Join(v.Dir, "pods", string(p.UID), "volume-subpaths", m.Name, c.Name, strconv.Itoa(index))
	if err := subpath.Mount(vol.path, sub, out.HostPath); err != nil {
		// The cause is only logged: its text would tell the container about the host.
		v.Log.WarnContext(ctx, "a subPath of a volume cannot be mounted", "pod", p.Namespace+"/"+p.Name, "container", c.Name, "volume",
			m.Name, "subPath", sub, "err", err)
		if errors.Is(err, subpath.ErrMake) {
			return nil, fmt.Errorf("failed to create subPath directory for volumeMount %q of container %q", m.Name, c.Name)
		}
		return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", m.Name, c.Name)
	}
	return out, nil
}

// ensureImage makes the image of an image volume present.
func (v *Volumes) ensureImage(ctx context.Context, p *corev1.Pod, name string, s *corev1.ImageVolumeSource) (*cri.ImageSpec, error) {
	got, err := v.Images.Ensure(ctx, p, &corev1.Container{Name: name, Image: s.Reference, ImagePullPolicy: s.PullPolicy}, nil)
	if err != nil {
		return nil, err
	}
	return &cri.ImageSpec{Image: got.Id, UserSpecifiedImage: s.Reference, Annotations: p.Annotations}, nil
}

func propagationOf(m *corev1.MountPropagationMode) (cri.MountPropagation, error) {
	if m == nil {
		return cri.PropagationPrivate, nil
	}
	switch *m {
	case corev1.MountPropagationNone:
		return cri.PropagationPrivate, nil
	case corev1.MountPropagationHostToContainer:
		return cri.PropagationHostToContainer, nil
	case corev1.MountPropagationBidirectional:
		return cri.PropagationBidirectional, nil
	}
	return 0, fmt.Errorf("invalid MountPropagation mode: %q", *m)
}

// recursiveReadOnly reports whether mounts below the volume become read-only too.
func recursiveReadOnly(m *corev1.VolumeMount, can bool) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !m.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", m.Name)
	}
	if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", m.Name, *m.MountPropagation)
	}
	switch *m.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyIfPossible:
		return can, nil
	case corev1.RecursiveReadOnlyEnabled:
		if !can {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", m.Name)
		}
		return true, nil
	}
	return false, fmt.Errorf("unknown recursive read-only mode %q", *m.RecursiveReadOnly)
}
