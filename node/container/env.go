package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
	"proa.dev/node/subpath"
)

// configError makes an error a CreateContainerConfigError, which the container's waiting state shows.
func configError(err error) error {
	if _, ok := errors.AsType[*fact.Waiting](err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	return &fact.Waiting{Reason: "CreateContainerConfigError", Message: err.Error()}
}

// Env returns the environment of a container: the variables of envFrom, then those of env, and last those of Services.
// Later variables can refer to earlier ones and replace them, except that those of Services replace none.
func (m *Maker) Env(ctx context.Context, p *corev1.Pod, c *corev1.Container, ips []netip.Addr) ([]*cri.KeyValue, error) {
	if p.Spec.EnableServiceLinks == nil {
		return nil, configError(errors.New("nil pod.spec.enableServiceLinks encountered, cannot construct envvars"))
	}
	e := environment{values: map[string]string{}}
	services := m.serviceEnv(p.Namespace, *p.Spec.EnableServiceLinks)
	for i := range c.EnvFrom {
		if err := m.envFrom(ctx, p, &c.EnvFrom[i], &e); err != nil {
			return nil, configError(err)
		}
	}
	for i := range c.Env {
		v := &c.Env[i]
		value, err := Expand(v.Value, orReference(e.values, services), MaxArguments-e.size)
		if err != nil {
			return nil, configError(tooLarge(v.Name))
		}
		found := true
		if v.Value == "" && v.ValueFrom != nil {
			if value, found, err = m.valueFrom(ctx, p, c, v.ValueFrom, ips); err != nil {
				return nil, configError(err)
			}
		}
		if found {
			if err := e.set(v.Name, value); err != nil {
				return nil, configError(err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if _, has := e.values[name]; !has {
			if err := e.set(name, services[name]); err != nil {
				return nil, configError(err)
			}
		}
	}
	out := make([]*cri.KeyValue, 0, len(e.names))
	for _, name := range e.names {
		out = append(out, &cri.KeyValue{Key: name, Value: []byte(e.values[name])})
	}
	return out, nil
}

// environment holds variables in the order in which they were set first, and their size as arguments of a program.
type environment struct {
	names  []string
	values map[string]string
	size   int
}

// set sets a variable. It is an error if the environment becomes too large.
func (e *environment) set(name, value string) error {
	old, has := e.values[name]
	if !has {
		e.names = append(e.names, name)
		e.size += len(name) + 2 // NAME=VALUE and a zero
	}
	e.values[name] = value
	if e.size += len(value) - len(old); e.size > MaxArguments {
		return tooLarge(name)
	}
	return nil
}

// tooLarge is the error of a variable that does not fit into the environment.
func tooLarge(name string) error {
	return fmt.Errorf("with the variable %.100q the environment has more than the %d bytes that Linux accepts for a program: "+
		"shorten it, or the variables that it refers to; large texts belong in a volume", name, MaxArguments)
}

// envFrom adds all keys of a ConfigMap or a Secret.
func (m *Maker) envFrom(ctx context.Context, p *corev1.Pod, from *corev1.EnvFromSource, e *environment) error {
	switch {
	case from.ConfigMapRef != nil:
		o, err := m.configMap(ctx, p, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if o == nil {
			return err
		}
		for _, k := range slices.Sorted(maps.Keys(o.Data)) {
			if err := e.set(from.Prefix+k, o.Data[k]); err != nil {
				return err
			}
		}
	case from.SecretRef != nil:
		o, err := m.secret(ctx, p, from.SecretRef.Name, from.SecretRef.Optional)
		if o == nil {
			return err
		}
		for _, k := range slices.Sorted(maps.Keys(o.Data)) {
			if err := e.set(from.Prefix+k, string(o.Data[k])); err != nil {
				return err
			}
		}
	}
	return nil
}

// valueFrom returns the value of a variable with a valueFrom. found is false if the source is optional and does not
// exist.
func (m *Maker) valueFrom(ctx context.Context, p *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource,
	ips []netip.Addr) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = m.field(p, from.FieldRef, ips)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = m.resourceField(p, c, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		o, err := m.configMap(ctx, p, ref.Name, ref.Optional)
		if o == nil {
			return "", false, err
		}
		value, found = o.Data[ref.Key]
		if !found && !isTrue(ref.Optional) {
			err = fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, p.Namespace, ref.Name)
		}
		return value, found, err
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		o, err := m.secret(ctx, p, ref.Name, ref.Optional)
		if o == nil {
			return "", false, err
		}
		text, found := o.Data[ref.Key]
		if !found && !isTrue(ref.Optional) {
			err = fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, p.Namespace, ref.Name)
		}
		return string(text), found, err
	case from.FileKeyRef != nil:
		return m.fromFile(p, from.FileKeyRef)
	}
	return "", true, nil
}

// configMap reads a ConfigMap; it returns nil without an error if it is optional and does not exist.
func (m *Maker) configMap(ctx context.Context, p *corev1.Pod, name string, optional *bool) (*corev1.ConfigMap, error) {
	o, err := m.Refs.ConfigMap(ctx, p, name)
	if apierrors.IsNotFound(err) {
		if isTrue(optional) {
			return nil, nil
		}
		return nil, fmt.Errorf("configmap %q not found", name)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// secret reads a Secret; it returns nil without an error if it is optional and does not exist.
func (m *Maker) secret(ctx context.Context, p *corev1.Pod, name string, optional *bool) (*corev1.Secret, error) {
	o, err := m.Refs.Secret(ctx, p, name)
	if apierrors.IsNotFound(err) {
		if isTrue(optional) {
			return nil, nil
		}
		return nil, fmt.Errorf("secret %q not found", name)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// fromFile reads a variable from a file that an init container wrote into a volume. The container may have put symbolic
// links there, so the path is resolved inside the volume only.
func (m *Maker) fromFile(p *corev1.Pod, ref *corev1.FileKeySelector) (string, bool, error) {
	if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == ref.VolumeName && v.EmptyDir != nil }) {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	dir := filepath.Join(m.PodDir(p.UID), "volumes", "kubernetes.io~empty-dir", ref.VolumeName)
	value, found, err := readEnvFile(dir, ref.Path, ref.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isTrue(ref.Optional):
		return "", false, nil
	case err != nil:
		return "", false, errors.New("couldn't parse env file")
	case (!found || value == "") && isTrue(ref.Optional):
		return "", false, nil
	case !found || value == "":
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, filepath.Join(dir, ref.Path))
	}
	return value, true, nil
}

func readEnvFile(dir, path, key string) (string, bool, error) {
	text, err := subpath.ReadFile(dir, path, maxEnvFile)
	if err != nil {
		return "", false, err
	}
	return envFile(string(text), key)
}

func isTrue(b *bool) bool { return b != nil && *b }
