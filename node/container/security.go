package container

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
)

// effectiveSecurityContext returns the security context of a container: its own, completed by that of the Pod.
func effectiveSecurityContext(p *corev1.Pod, c *corev1.Container) *corev1.SecurityContext {
	s := &corev1.SecurityContext{}
	if c.SecurityContext != nil {
		s = c.SecurityContext.DeepCopy()
	}
	if o := p.Spec.SecurityContext; o != nil {
		s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot = firstNonNil(s.RunAsUser, o.RunAsUser), firstNonNil(s.RunAsGroup,
			o.RunAsGroup), firstNonNil(s.RunAsNonRoot, o.RunAsNonRoot)
		s.SELinuxOptions = firstNonNil(s.SELinuxOptions, o.SELinuxOptions)
		s.SeccompProfile = firstNonNil(s.SeccompProfile, o.SeccompProfile)
	}
	s.AppArmorProfile = appArmorOf(p, c)
	return s
}

func firstNonNil[T any](list ...*T) *T {
	for _, p := range list {
		if p != nil {
			return p
		}
	}
	return nil
}

// imageUser returns the user of an image: a number, or a name, or root if it names none.
func imageUser(i *cri.Image) (uid *int64, name string) {
	switch {
	case i.GetUid() != nil:
		return new(i.GetUid().GetValue()), ""
	case i.GetUsername() != "":
		return nil, i.GetUsername()
	}
	return new(int64(0)), ""
}

// checkUser rejects a container that must not run as root but might. A user that has only a name could be root.
func checkUser(p *corev1.Pod, c *corev1.Container, s *corev1.SecurityContext, uid *int64, name string) error {
	if s.RunAsUser == nil && uid != nil && *uid != 0 {
		if bad := validation.IsValidUserID(*uid); len(bad) > 0 {
			// Such a number may wrap around to root, so it is always rejected.
			why := "container has runAsNonRoot and image"
			if !isTrue(s.RunAsNonRoot) {
				why = "image"
			}
			return fmt.Errorf("%s has an invalid user id (%d). (Must be 1-(%d)): %s (pod: %q, container: %s)",
				why, *uid, math.MaxInt32, strings.Join(bad, "; "), fact.FullName(p), c.Name)
		}
	}
	if !isTrue(s.RunAsNonRoot) {
		return nil
	}
	switch {
	case s.RunAsUser != nil && *s.RunAsUser == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", fact.FullName(p), c.Name)
	case s.RunAsUser != nil:
		return nil
	case uid == nil && name != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root (pod: %q, container: %s)", name, fact.FullName(p), c.Name)
	case uid != nil && *uid == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", fact.FullName(p), c.Name)
	}
	return nil
}

// security returns the security context of a container for the runtime.
func (m *Maker) security(p *corev1.Pod, c *corev1.Container, image *cri.Image, handler string) (*cri.LinuxContainerSecurityContext, error) {
	s := effectiveSecurityContext(p, c)
	uid, name := imageUser(image)
	if err := checkUser(p, c, s, uid, name); err != nil {
		return nil, err
	}
	out := &cri.LinuxContainerSecurityContext{
		RunAsUser: int64Value(s.RunAsUser), RunAsGroup: int64Value(s.RunAsGroup), SelinuxOptions: seLinux(s.SELinuxOptions),
		Privileged: isTrue(s.Privileged), ReadonlyRootfs: isTrue(s.ReadOnlyRootFilesystem),
		NoNewPrivs: s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation,
	}
	if s.Capabilities != nil {
		out.Capabilities = &cri.Capability{AddCapabilities: stringsOf(s.Capabilities.Add), DropCapabilities: stringsOf(s.Capabilities.Drop)}
	}
	if out.RunAsUser == nil {
		// The user of the image is set explicitly, so that the runtime does not read the image again and find another.
		out.RunAsUser, out.RunAsUsername = int64Value(uid), name
	}
	if s.ProcMount == nil || *s.ProcMount != corev1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = m.masked(), []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	}
	var err error
	if out.Seccomp, err = m.seccomp(s.SeccompProfile); err != nil {
		return nil, err
	}
	if out.Apparmor, err = appArmor(s.AppArmorProfile); err != nil {
		return nil, err
	}
	if out.NamespaceOptions, err = m.namespaces(p, handler); err != nil {
		return nil, err
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy, err = m.groups(p)
	return out, err
}

func stringsOf[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// seccomp returns the seccomp profile for the runtime.
func (m *Maker) seccomp(s *corev1.SeccompProfile) (*cri.SecurityProfile, error) {
	switch {
	case s == nil && m.SeccompDefault, s != nil && s.Type == corev1.SeccompProfileTypeRuntimeDefault:
		return &cri.SecurityProfile{ProfileType: cri.ProfileRuntimeDefault}, nil
	case s != nil && s.Type == corev1.SeccompProfileTypeLocalhost:
		if s.LocalhostProfile == nil || *s.LocalhostProfile == "" {
			return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost.")
		}
		if !filepath.IsLocal(*s.LocalhostProfile) {
			return nil, fmt.Errorf("the seccomp profile %q is not below the folder of profiles", *s.LocalhostProfile)
		}
		return &cri.SecurityProfile{ProfileType: cri.ProfileLocalhost,
			LocalhostRef: filepath.Join(m.Data, "seccomp", *s.LocalhostProfile)}, nil
	}
	return &cri.SecurityProfile{ProfileType: cri.ProfileUnconfined}, nil
}

// appArmorOf returns the AppArmor profile of a container: its own, that of the annotation that static Pods may still
// use, or the Pod's.
func appArmorOf(p *corev1.Pod, c *corev1.Container) *corev1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	if text, ok := p.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; ok {
		name, local := strings.CutPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
		switch {
		case text == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
			return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
		case text == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
			return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		case local:
			return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
		}
	}
	if p.Spec.SecurityContext != nil {
		return p.Spec.SecurityContext.AppArmorProfile
	}
	return nil
}

func appArmor(a *corev1.AppArmorProfile) (*cri.SecurityProfile, error) {
	if a == nil {
		return nil, nil
	}
	switch a.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &cri.SecurityProfile{ProfileType: cri.ProfileRuntimeDefault}, nil
	case corev1.AppArmorProfileTypeUnconfined:
		return &cri.SecurityProfile{ProfileType: cri.ProfileUnconfined}, nil
	case corev1.AppArmorProfileTypeLocalhost:
		if a.LocalhostProfile == nil {
			return nil, errors.New("missing localhost apparmor profile name")
		}
		return &cri.SecurityProfile{ProfileType: cri.ProfileLocalhost, LocalhostRef: *a.LocalhostProfile}, nil
	}
	return nil, fmt.Errorf("unknown apparmor profile type: %q", a.Type)
}

// maskedPaths returns the paths that are hidden in containers because they reveal or affect the machine.
func maskedPaths(cpus string) []string {
	out := []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	more, err := filepath.Glob(filepath.Join(cpus, "cpu[0-9]*", "thermal_throttle"))
	if err != nil {
		return out
	}
	slices.Sort(more)
	for _, path := range more {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			out = append(out, path)
		}
	}
	return out
}
