package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The names of the volume types as they are on disk and in the status of a Node.
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

// mounted is a volume that is ready, as containers get it.
type mounted struct {
	path string // on the host; empty for an image
	// device is a block device, which containers get instead of a mount.
	device string
	// readOnly says that no container may write, whatever its mount says.
	readOnly bool
	// ours says that the volume is labelled for the container where the host has such labels.
	ours  bool
	image *corev1.ImageVolumeSource
	// claim is the claim that the volume is bound to, and name that of the volume; empty for volumes of Pods.
	claim, name string
	// group is one that processes get because of the volume; empty for none.
	group string
	// unique is how the status of the Node calls a volume that is attached; empty for others.
	unique corev1.UniqueVolumeName
	// live says that the volume is brought up to date again and again, at the latest at the time again, if that is set.
	live  bool
	again time.Time
}

// result is what came of bringing a volume up to date: it is ready, or there is an error, or both when only the newest
// contents are missing.
type result struct {
	ready   *mounted
	err     error
	unknown bool // not even what the volume is could be found out
	waits   bool // for the volume to be attached
}

// step is an error with the name of the operation that people know from Events.
type step struct {
	operation string
	err       error
}

func (s *step) Error() string { return s.operation + ": " + s.err.Error() }
func (s *step) Unwrap() error { return s.err }

// told is an error as Events tell it.
func told(name string, err error) error {
	operation := "MountVolume.SetUp failed"
	if s, ok := errors.AsType[*step](err); ok {
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

// bring makes one volume ready, or up to date if it was ready before.
func (v *Volumes) bring(ctx context.Context, p *corev1.Pod, vol *corev1.Volume, before *mounted) result {
	if before != nil && !before.live {
		return result{ready: before}
	}
	if !plain(vol.Name) {
		return result{err: told(vol.Name, errors.New("the name of the volume is not one of a file"))}
	}
	name := vol.Name
	var m *mounted
	var err error
	switch s := &vol.VolumeSource; {
	case s.EmptyDir != nil:
		m, err = v.emptyDir(ctx, p, name, s.EmptyDir)
	case s.HostPath != nil:
		m, err = hostPath(s.HostPath)
	case s.ConfigMap != nil:
		m, err = v.contents(ctx, p, name, pluginConfigMap, onDisk, v.configMap(s.ConfigMap))
	case s.Secret != nil:
		m, err = v.contents(ctx, p, name, pluginSecret, inMemory, v.secret(s.Secret))
	case s.DownwardAPI != nil:
		m, err = v.contents(ctx, p, name, pluginDownward, inMemory, v.downward(s.DownwardAPI))
	case s.Projected != nil:
		m, err = v.contents(ctx, p, name, pluginProjected, inMemory, v.projected(name, s.Projected))
	case s.NFS != nil:
		m, err = v.nfs(ctx, p, name, s.NFS, s.NFS.ReadOnly, nil)
	case s.Image != nil:
		m = &mounted{image: s.Image, readOnly: true}
	case s.CSI != nil:
		m, err = v.inline(ctx, p, name, s.CSI, before)
	case s.PersistentVolumeClaim != nil, s.Ephemeral != nil:
		return v.claimed(ctx, p, vol, before)
	default:
		err = &step{"MountVolume.FindPluginBySpec failed", errors.New("no volume plugin matched")}
	}
	return finish(name, m, err, before)
}

// finish makes a result. A volume that was ready stays so when its contents cannot be renewed.
func finish(name string, m *mounted, err error, before *mounted) result {
	if err == nil {
		return result{ready: m}
	}
	s, ok := errors.AsType[*step](err)
	return result{ready: before, err: told(name, err), waits: ok && strings.HasSuffix(s.operation, ".WaitForAttach failed")}
}
