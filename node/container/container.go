package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/period"
	"proa.dev/node/cri"
	"proa.dev/node/pod"
)

// The annotations by which the runtime remembers what a container was made from. Other tools read them too.
const (
	noteHash        = "io.kubernetes.container.hash"
	noteRestarts    = "io.kubernetes.container.restartCount"
	notePath        = "io.kubernetes.container.terminationMessagePath"
	notePolicy      = "io.kubernetes.container.terminationMessagePolicy"
	notePreStop     = "io.kubernetes.container.preStopHandler"
	notePorts       = "io.kubernetes.container.ports"
	noteDeletion    = "io.kubernetes.pod.deletionGracePeriod"
	noteTermination = "io.kubernetes.pod.terminationGracePeriod"
)

// GracePeriod is the grace period of the Pod that a container's annotations tell; that of Pods which say nothing if they tell none.
func GracePeriod(annotations map[string]string) time.Duration {
	for _, note := range []string{noteDeletion, noteTermination} {
		if n, err := strconv.ParseInt(annotations[note], 10, 64); err == nil && n >= 0 {
			return period.Seconds(n)
		}
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// Container is what the runtime makes a container from.
func (m *Maker) Container(ctx context.Context, p *corev1.Pod, c *corev1.Container, r pod.Run) (*cri.ContainerConfig, error) {
	handler, err := m.Handler(ctx, p)
	if err != nil {
		return nil, configError(err)
	}
	if r.Image == nil {
		return nil, configError(errors.New("the image of the container is not here"))
	}
	security, err := m.security(p, c, r.Image, handler)
	if err != nil {
		return nil, configError(err)
	}
	if r.Target != "" && security.NamespaceOptions.Pid == cri.NamespaceContainer {
		security.NamespaceOptions.Pid, security.NamespaceOptions.TargetId = cri.NamespaceTarget, r.Target
	}
	config := &cri.ContainerConfig{
		Metadata:   &cri.ContainerMetadata{Name: c.Name, Attempt: r.Attempt},
		Image:      &cri.ImageSpec{Image: r.Image.GetId(), UserSpecifiedImage: c.Image},
		WorkingDir: c.WorkingDir,
		Envs:       r.Env,
		Devices:    r.Devices,
		CDIDevices: cdi(r.CDI),
		Labels: map[string]string{
			pod.LabelName: p.Name, pod.LabelNamespace: p.Namespace, pod.LabelUID: string(p.UID), pod.LabelContainer: c.Name,
		},
		LogPath: filepath.Join(c.Name, strconv.FormatUint(uint64(r.Attempt), 10)+".log"),
		Stdin:   c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		Linux: &cri.LinuxContainerConfig{Resources: m.Resources(p, c), SecurityContext: security},
	}
	value := orItself(asMap(r.Env))
	for _, word := range c.Command {
		config.Command = append(config.Command, Expand(word, value))
	}
	for _, word := range c.Args {
		config.Args = append(config.Args, Expand(word, value))
	}
	if config.Annotations, err = m.notes(p, c, r); err != nil {
		return nil, configError(err)
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		if config.StopSignal, err = cri.SignalOf(string(*c.Lifecycle.StopSignal)); err != nil {
			return nil, configError(err)
		}
	}
	if config.Mounts, err = m.mounts(p, c, r); err != nil {
		return nil, configError(err)
	}
	if u := security.NamespaceOptions.UsernsOptions; u != nil && u.Mode == cri.NamespacePod {
		for _, mount := range config.Mounts {
			mount.UidMappings, mount.GidMappings = u.Uids, u.Gids
		}
	}
	return config, nil
}

// mounts are the volumes, the file of hosts and the place for the last message.
func (m *Maker) mounts(p *corev1.Pod, c *corev1.Container, r pod.Run) ([]*cri.Mount, error) {
	out := append([]*cri.Mount{}, r.Binds...)
	hosts, err := m.hosts(p, c, r.IPs)
	if err != nil {
		return nil, err
	}
	if hosts != nil {
		out = append(out, hosts)
	}
	if c.TerminationMessagePath == "" {
		return out, nil
	}
	dir := filepath.Join(m.PodDir(p.UID), "containers", c.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make a place for the last message: %w", err)
	}
	// Each run has its own file: the one of the run before may still be read.
	file := filepath.Join(dir, fmt.Sprintf("%08x", rand.Uint32()))        //nolint:gosec // G404: a name, not a secret
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666) //nolint:gosec // G302: see below
	if err != nil {
		return nil, fmt.Errorf("make a place for the last message: %w", err)
	}
	// Whoever the container runs as must be able to write, whatever the umask says.
	if err := errors.Join(f.Chmod(0o666), f.Close()); err != nil {
		return nil, fmt.Errorf("make a place for the last message: %w", err)
	}
	return append(out, &cri.Mount{HostPath: file, ContainerPath: absolute(c.TerminationMessagePath), SelinuxRelabel: m.SELinux}), nil
}

func cdi(names []string) (out []*cri.CDIDevice) {
	for _, name := range names {
		out = append(out, &cri.CDIDevice{Name: name})
	}
	return out
}

func absolute(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return "/" + path
}

// notes are the annotations of a container.
func (m *Maker) notes(p *corev1.Pod, c *corev1.Container, r pod.Run) (map[string]string, error) {
	out := map[string]string{}
	maps.Copy(out, r.Notes) // what is below counts more
	out[noteHash], out[noteRestarts] = m.Hash(c), strconv.FormatUint(uint64(r.Attempt), 10)
	out[notePath], out[notePolicy] = c.TerminationMessagePath, string(c.TerminationMessagePolicy)
	if s := p.DeletionGracePeriodSeconds; s != nil {
		out[noteDeletion] = strconv.FormatInt(*s, 10)
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		out[noteTermination] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		text, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, err
		}
		out[notePreStop] = string(text)
	}
	if len(c.Ports) > 0 {
		text, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, err
		}
		out[notePorts] = string(text)
	}
	return out, nil
}
