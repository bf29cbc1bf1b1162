package containerspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/lib/check"
)

// validateMounts checks the volume mounts of a container. Some errors name the list and not the element, as upstream's do.
func (s *PodContext) validateMounts(c *corev1.Container, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := map[string]bool{}
	devices := map[string]string{} // of several with the same name, the last counts
	for _, d := range c.VolumeDevices {
		devices[d.Name] = d.DevicePath
	}
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], list.Index(i)
		errs = append(errs, check.Required(m.Name, at.Child("name"))...)
		if s.Volumes[m.Name] == nil {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		errs = append(errs, check.Required(m.MountPath, at.Child("mountPath"))...)
		if paths[m.MountPath] {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths[m.MountPath] = true
		if _, also := devices[m.Name]; also {
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices"))
		}
		if hasValue(devices, m.MountPath) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices"))
		}
		errs = append(errs, check.DescendingPath(m.SubPath, list.Child("subPath"))...)
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, check.DescendingPath(m.SubPathExpr, list.Child("subPathExpr"))...)
		errs = append(errs, validatePropagation(m, c, list.Child("mountPropagation"))...)
		errs = append(errs, validateRecursiveReadOnly(m, list.Child("recursiveReadOnly"))...)
		errs = append(errs, s.bindOptions(m, at.Child("bindMountOptions"))...)
	}
	return errs
}

func validatePropagation(m *corev1.VolumeMount, c *corev1.Container, at *field.Path) field.ErrorList {
	errs := check.OneOfIfSet(m.MountPropagation, at, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer,
		corev1.MountPropagationNone)
	privileged := c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
	if p := m.MountPropagation; p != nil && *p == corev1.MountPropagationBidirectional && !privileged {
		errs = append(errs, field.Forbidden(at, "Bidirectional mount propagation is available only to privileged containers"))
	}
	return errs
}

func validateRecursiveReadOnly(m *corev1.VolumeMount, at *field.Path) field.ErrorList {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return nil
	}
	errs := check.OneOf(*m.RecursiveReadOnly, at, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled,
		corev1.RecursiveReadOnlyIfPossible)
	if len(errs) > 0 {
		return errs
	}
	if !m.ReadOnly {
		errs = append(errs, field.Forbidden(at, "may only be specified when readOnly is true"))
	}
	if p := m.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
		errs = append(errs, field.Forbidden(at, "may only be specified when mountPropagation is None or not specified"))
	}
	return errs
}

func (s *PodContext) bindOptions(m *corev1.VolumeMount, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, option := range m.BindMountOptions {
		errs = append(errs, check.OneOf(option, at.Index(i), "nodev", "noexec", "nosuid")...)
		if seen[option] {
			errs = append(errs, field.Duplicate(at.Index(i), option))
		}
		seen[option] = true
	}
	if v := s.Volumes[m.Name]; len(m.BindMountOptions) > 0 && v != nil && v.Image != nil {
		errs = append(errs, field.Invalid(at, m.BindMountOptions, "bindMountOptions may not be used with image volumes"))
	}
	return errs
}

// validateDevices checks the block devices of a container.
func (s *PodContext) validateDevices(c *corev1.Container, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, paths := map[string]bool{}, map[string]bool{}
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	for i, d := range c.VolumeDevices {
		name, path := list.Index(i).Child("name"), list.Index(i).Child("devicePath")
		errs = append(errs, check.Required(d.Name, name)...)
		if names[d.Name] {
			errs = append(errs, field.Invalid(name, d.Name, "must be unique"))
		}
		if v := s.Volumes[d.Name]; v == nil {
			errs = append(errs, field.NotFound(name, d.Name))
		} else if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			errs = append(errs, field.Invalid(name, d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		errs = append(errs, check.Required(d.DevicePath, path)...)
		if paths[d.DevicePath] {
			errs = append(errs, field.Invalid(path, d.DevicePath, "must be unique"))
		}
		if len(check.NoBacksteps(d.DevicePath, path)) > 0 {
			errs = append(errs, field.Invalid(path, d.DevicePath, "can not contain backsteps ('..')"))
		} else {
			paths[d.DevicePath] = true
		}
		if _, also := mounts[d.Name]; also {
			errs = append(errs, field.Invalid(name, d.Name, "must not already exist in volumeMounts"))
		}
		if hasValue(mounts, d.DevicePath) {
			errs = append(errs, field.Invalid(path, d.DevicePath, "must not already exist as a path in volumeMounts"))
		}
		if d.Name != "" {
			names[d.Name] = true
		}
	}
	return errs
}

func hasValue(m map[string]string, value string) bool {
	for _, v := range m {
		if v == value {
			return true
		}
	}
	return false
}
