package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"proa.dev/node/fact"
	"proa.dev/node/volume/downward"
	"proa.dev/node/volume/files"
	"proa.dev/node/volume/fsgroup"
)

// medium is what the contents of a volume are stored on.
type medium int

const (
	onDisk medium = iota
	// inMemory is for contents that must not be left on a disk.
	inMemory
)

// payload is the contents of a volume, and the time at which they must be refreshed, if there is one.
type payload struct {
	files     map[string]files.File
	refreshAt time.Time
}

// source computes the contents of a volume of a Pod.
type source func(ctx context.Context, p *corev1.Pod) (payload, error)

// mountContents mounts a volume that holds the files of a source. Containers cannot write to it.
func (v *Volumes) mountContents(ctx context.Context, p *corev1.Pod, name, plugin string, on medium, from source) (*mounted, error) {
	want, err := from(ctx, p)
	if err != nil {
		return nil, err
	}
	node := v.Allocatable()
	if err := v.contents.take(p.UID, name, sizeOf(want.files), on, contentsOfNode(node)); err != nil {
		return nil, err
	}
	dir := v.volumeDir(p.UID, plugin, name)
	if on == inMemory {
		err = mountTmpfs(dir, contentsTmpfs(p, node))
	} else {
		err = makeFolder(dir)
	}
	if err != nil {
		return nil, err
	}
	if err := makeNested(p, name, dir); err != nil {
		return nil, err
	}
	err = files.Write(dir, want.files, func() error {
		g := fsGroup(p)
		if g == nil {
			return nil
		}
		gift := fsgroup.Change{Dir: dir, Group: *g, ReadOnly: true}
		return gift.Apply(ctx)
	})
	if err != nil {
		return nil, err
	}
	return &mounted{path: dir, readOnly: true, relabel: true, live: true, refreshAt: want.refreshAt}, nil
}

// makeNested makes the folders on which other volumes are mounted inside this one: the container cannot, because it is
// read-only.
func makeNested(p *corev1.Pod, name, dir string) error {
	nested := nestedMounts(p, name)
	if len(nested) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unable to create nested volume mountpoints: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, at := range nested {
		if _, err := root.Stat(at); err == nil {
			continue // a file of the volume, or a folder made before
		}
		if err := root.MkdirAll(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("unable to create nested volume mountpoints: %w", err)
		}
	}
	return nil
}

// nestedMounts returns the places inside a volume where a container mounts something else, without places that are
// inside of another such place.
func nestedMounts(p *corev1.Pod, name string) (out []string) {
	for c := range fact.AllContainers(p) {
		var all []string
		for i := range c.VolumeMounts {
			all = append(all, filepath.Clean("/"+c.VolumeMounts[i].MountPath))
		}
		slices.Sort(all)
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name != name {
				continue
			}
			top := strings.TrimSuffix(filepath.Clean("/"+c.VolumeMounts[i].MountPath), "/") + "/"
			var seen []string
			for _, at := range all {
				inner, ok := strings.CutPrefix(at, top)
				if !ok || slices.ContainsFunc(seen, func(s string) bool { return strings.HasPrefix(at, s) }) {
					continue
				}
				seen = append(seen, at+"/")
				out = append(out, inner)
			}
		}
	}
	return out
}

func (v *Volumes) configMap(s *corev1.ConfigMapVolumeSource) source {
	return func(ctx context.Context, p *corev1.Pod) (payload, error) {
		got, err := v.filesOfConfigMap(ctx, p, s.Name, keys{s.Items, s.DefaultMode, isTrue(s.Optional)})
		return payload{files: got}, err
	}
}

func (v *Volumes) secret(s *corev1.SecretVolumeSource) source {
	return func(ctx context.Context, p *corev1.Pod) (payload, error) {
		got, err := v.filesOfSecret(ctx, p, s.SecretName, keys{s.Items, s.DefaultMode, isTrue(s.Optional)})
		return payload{files: got}, err
	}
}

func (v *Volumes) downward(s *corev1.DownwardAPIVolumeSource) source {
	return func(_ context.Context, p *corev1.Pod) (payload, error) {
		got, err := filesOfPod(p, s.Items, s.DefaultMode, v.Allocatable())
		return payload{files: got}, err
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// keys says which keys of an object become files, and with which mode.
type keys struct {
	items    []corev1.KeyToPath
	mode     *int32
	optional bool
}

func (v *Volumes) filesOfConfigMap(ctx context.Context, p *corev1.Pod, name string, k keys) (map[string]files.File, error) {
	o, err := v.Refs.ConfigMap(ctx, p, name)
	if k.optional && apierrors.IsNotFound(err) {
		o, err = &corev1.ConfigMap{}, nil
	}
	if err != nil {
		return nil, err
	}
	data := make(map[string][]byte, len(o.Data)+len(o.BinaryData))
	maps.Copy(data, o.BinaryData)
	for name, text := range o.Data {
		data[name] = []byte(text)
	}
	return k.of(data, "configmap references non-existent config key: %s")
}

func (v *Volumes) filesOfSecret(ctx context.Context, p *corev1.Pod, name string, k keys) (map[string]files.File, error) {
	o, err := v.Refs.Secret(ctx, p, name)
	if k.optional && apierrors.IsNotFound(err) {
		o, err = &corev1.Secret{}, nil
	}
	if err != nil {
		return nil, err
	}
	return k.of(o.Data, "references non-existent secret key: %s")
}

var errNoMode = errors.New("no defaultMode used, not even the default value for it")

// of returns the files for the keys of data. missing is the error text for a key that does not exist.
func (k keys) of(data map[string][]byte, missing string) (map[string]files.File, error) {
	if k.mode == nil {
		return nil, errNoMode
	}
	out := make(map[string]files.File, len(data))
	if len(k.items) == 0 {
		for name, d := range data {
			out[name] = files.File{Data: d, Mode: fs.FileMode(*k.mode)}
		}
		return out, nil
	}
	for _, item := range k.items {
		d, ok := data[item.Key]
		if !ok {
			if k.optional {
				continue
			}
			return nil, fmt.Errorf(missing, item.Key)
		}
		out[item.Path] = files.File{Data: d, Mode: fs.FileMode(*either(item.Mode, k.mode))}
	}
	return out, nil
}

func either(a, b *int32) *int32 {
	if a != nil {
		return a
	}
	return b
}

// filesOfPod returns the files of a downward API volume.
func filesOfPod(p *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode *int32, allocatable corev1.ResourceList) (map[string]files.File,
	error) {
	if mode == nil {
		return nil, errNoMode
	}
	out := make(map[string]files.File, len(items))
	var errs []error
	var size int
	for i := range items {
		var text string
		var err error
		switch item := &items[i]; {
		case item.FieldRef != nil:
			text, err = downward.Field(p, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = downward.Resource(p, item.ResourceFieldRef, allocatable)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if size += len(text); size > maxContents {
			return nil, fmt.Errorf("its fields of the Pod have more than %d MiB: name fewer items", maxContents>>20)
		}
		out[filepath.Clean(items[i].Path)] = files.File{Data: []byte(text), Mode: fs.FileMode(*either(items[i].Mode, mode))}
	}
	return out, utilerrors.NewAggregate(errs)
}
