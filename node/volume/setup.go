package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The names of the volume plugins, as they appear on disk and in the status of a Node.
const (
	pluginEmptyDir  = "kubernetes.io/empty-dir"
	pluginConfigMap = "kubernetes.io/configmap"
	pluginSecret    = "kubernetes.io/secret"
	pluginDownward  = "kubernetes.io/downward-api"
	pluginProjected = "kubernetes.io/projected"
	pluginLocal     = "kubernetes.io/local-volume"
	pluginNFS       = "kubernetes.io/nfs"
	pluginCSI       = "kubernetes.io/csi"
)

// mounted is a volume that is ready for containers.
type mounted struct {
	path string // on the host; empty for an image
	// device is the block device that containers get instead of a mount.
	device string
	// readOnly forbids writes, whatever the mount of a container says.
	readOnly bool
	// relabel asks the runtime to relabel the volume for the container, on hosts with SELinux.
	relabel bool
	image   *corev1.ImageVolumeSource
	// claim is the claim that the volume is bound to, name the name of the persistent volume; empty for other volumes.
	claim, name string
	// group is a supplemental group that processes get because of the volume; empty for none.
	group string
	// unique is the name of an attached volume in the status of the Node; empty for others.
	unique corev1.UniqueVolumeName
	// live volumes are refreshed while they are mounted, at the time again at the latest, if that is set.
	live      bool
	refreshAt time.Time
	// plugin is the name of the volume plugin, with that of the CSI driver.
	plugin string
}

// result is the outcome of mounting or refreshing a volume. It has both a volume and an error if the volume is ready
// but its newest contents are missing.
type result struct {
	ready   *mounted
	err     error
	unknown bool   // the claim of the volume could not be resolved
	waits   bool   // for the volume to be attached
	plugin  string // of a claim's volume that could not be mounted
}

// operationError is an error with the name of the failed operation as Events of Kubernetes have it.
type operationError struct {
	operation string
	err       error
}

func (s *operationError) Error() string { return s.operation + ": " + s.err.Error() }
func (s *operationError) Unwrap() error { return s.err }

// eventError returns an error with the text of its Event.
func eventError(name string, err error) error {
	operation := "MountVolume.SetUp failed"
	if s, ok := errors.AsType[*operationError](err); ok {
		operation, err = s.operation, s.err
	}
	return fmt.Errorf("%s for volume %q : %w", operation, name, err)
}

func join(a, b error) error {
	if a == nil {
		return b
	}
	return fmt.Errorf("%w; %w", a, b)
}

// mountVolume mounts a volume, or refreshes it if it was ready before.
func (v *Volumes) mountVolume(ctx context.Context, p *corev1.Pod, vol *corev1.Volume, before *mounted) result {
	if before != nil && !before.live {
		return result{ready: before}
	}
	if !isFileName(vol.Name) {
		return result{err: eventError(vol.Name, errors.New("the name of the volume is not one of a file"))}
	}
	name := vol.Name
	var m *mounted
	var err error
	switch s := &vol.VolumeSource; {
	case s.EmptyDir != nil:
		m, err = v.mountEmptyDir(ctx, p, name, s.EmptyDir)
	case s.HostPath != nil:
		m, err = hostPath(s.HostPath)
	case s.ConfigMap != nil:
		m, err = v.mountContents(ctx, p, name, pluginConfigMap, onDisk, v.configMap(s.ConfigMap))
	case s.Secret != nil:
		m, err = v.mountContents(ctx, p, name, pluginSecret, inMemory, v.secret(s.Secret))
	case s.DownwardAPI != nil:
		m, err = v.mountContents(ctx, p, name, pluginDownward, inMemory, v.downward(s.DownwardAPI))
	case s.Projected != nil:
		m, err = v.mountContents(ctx, p, name, pluginProjected, inMemory, v.projected(name, s.Projected))
	case s.NFS != nil:
		m, err = v.mountNFS(ctx, p, name, s.NFS, s.NFS.ReadOnly, nil)
	case s.Image != nil:
		m = &mounted{image: s.Image, readOnly: true}
	case s.CSI != nil:
		m, err = v.mountInlineCSI(ctx, p, name, s.CSI, before)
	case s.PersistentVolumeClaim != nil, s.Ephemeral != nil:
		return v.mountClaim(ctx, p, vol, before)
	default:
		err = &operationError{"MountVolume.FindPluginBySpec failed", errors.New("no volume plugin matched")}
	}
	return resultOf(name, m, err, before)
}

// resultOf makes a result. A volume that was ready stays so if it cannot be refreshed.
func resultOf(name string, m *mounted, err error, before *mounted) result {
	if err == nil {
		return result{ready: m}
	}
	s, ok := errors.AsType[*operationError](err)
	return result{ready: before, err: eventError(name, err), waits: ok && strings.HasSuffix(s.operation, ".WaitForAttach failed")}
}
