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

	"proa.dev/kinds/lib/duration"
	"proa.dev/node/cri"
	"proa.dev/node/pod"
)

// The annotations by which the runtime remembers what a container was created from. Other tools read them too.
const (
	annotationHash             = "io.kubernetes.container.hash"
	annotationRestarts         = "io.kubernetes.container.restartCount"
	annotationMessagePath      = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy    = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStop          = "io.kubernetes.container.preStopHandler"
	annotationPorts            = "io.kubernetes.container.ports"
	annotationDeletionGrace    = "io.kubernetes.pod.deletionGracePeriod"
	annotationTerminationGrace = "io.kubernetes.pod.terminationGracePeriod"
)

// GracePeriod returns the grace period of a container's Pod according to the container's annotations, the default of
// the API if they have none.
func GracePeriod(annotations map[string]string) time.Duration {
	for _, note := range []string{annotationDeletionGrace, annotationTerminationGrace} {
		if n, err := strconv.ParseInt(annotations[note], 10, 64); err == nil && n >= 0 {
			return duration.FromSeconds(n)
		}
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// Container returns the runtime's configuration of a container.
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
	if config.Command, config.Args, err = commandAndArgs(c, asMap(r.Env)); err != nil {
		return nil, configError(err)
	}
	if config.Annotations, err = m.annotations(p, c, r); err != nil {
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

// commandAndArgs returns the command and the arguments of a container with the values of its environment.
func commandAndArgs(c *corev1.Container, env map[string]string) (command, args []string, err error) {
	room, value := MaxArguments, orReference(env)
	for name, v := range env {
		room -= len(name) + len(v) + 2
	}
	expand := func(words []string) (out []string) {
		for _, word := range words {
			text, failed := Expand(word, value, max(room, 0))
			if room -= len(text) + 1; failed != nil || room < 0 {
				err = fmt.Errorf("with the argument %.100q the environment, the command and the arguments have more than the %d bytes "+
					"that Linux accepts for a program: shorten it, or the variables that it refers to", word, MaxArguments)
				return nil
			}
			out = append(out, text)
		}
		return out
	}
	if command = expand(c.Command); err == nil {
		args = expand(c.Args)
	}
	return command, args, err
}

// mounts returns the mounts of the volumes, of /etc/hosts and of the termination message.
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
	// Each run has a file of its own: the message of the run before may still be read.
	file := filepath.Join(dir, fmt.Sprintf("%08x", rand.Uint32())) //nolint:gosec // G404: the name of a file, not a secret
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a place for the last message: %w", err)
	}
	// Whoever the container runs as must be able to write, whatever the umask.
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

// annotations returns the annotations of a container.
func (m *Maker) annotations(p *corev1.Pod, c *corev1.Container, r pod.Run) (map[string]string, error) {
	out := map[string]string{}
	maps.Copy(out, r.Annotations) // the annotations below take precedence
	out[annotationHash], out[annotationRestarts] = m.Hash(c), strconv.FormatUint(uint64(r.Attempt), 10)
	out[annotationMessagePath], out[annotationMessagePolicy] = c.TerminationMessagePath, string(c.TerminationMessagePolicy)
	if s := p.DeletionGracePeriodSeconds; s != nil {
		out[annotationDeletionGrace] = strconv.FormatInt(*s, 10)
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		out[annotationTerminationGrace] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		text, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, err
		}
		out[annotationPreStop] = string(text)
	}
	if len(c.Ports) > 0 {
		text, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, err
		}
		out[annotationPorts] = string(text)
	}
	return told(out), nil
}
