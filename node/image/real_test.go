package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
	"proa.dev/node/nodetest"
	"proa.dev/test/images/oci"
	"proa.dev/test/registry"
)

// serve starts a registry with one small image a name, which the runtime reaches under a host's name.
func serve(t *testing.T, rt nodetest.Runtime, host string, auth registry.Auth, names ...string) *registry.Registry {
	t.Helper()
	var images []oci.Image
	for _, name := range names {
		tree := oci.Tree{}
		tree.Text("name", host+"/"+name)
		layer, err := tree.Layer()
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, oci.Image{Names: []string{name + ":1"}, Process: oci.Process{User: "1000"}, Layers: []oci.Layer{layer}})
	}
	path := filepath.Join(t.TempDir(), "images.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(oci.Write(f, images...), f.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := registry.Start(t.Context(), registry.Options{Archives: []string{path}, Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Mirror(filepath.Join(rt.Dir, "certs.d"), host); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestReal pulls with a real runtime from real registries.
func TestReal(t *testing.T) {
	rt := nodetest.StartRuntime(t)
	open := serve(t, rt, "open.test", registry.Anonymous, "one", "two")
	closed := serve(t, rt, "closed.test", registry.Token, "mine")
	s := newShop()
	m, err := New(Config{Service: OfCRI(rt.Client), Secrets: registrySecret{closed}, Events: s, Dir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ensure := func(image string, policy corev1.PullPolicy, uid string, secrets ...string) (string, string) {
		p := newPod()
		p.UID, p.Spec.ImagePullSecrets = "u-"+p.UID, nil
		p.Name = uid
		for _, name := range secrets {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
		}
		s.told = nil
		got, err := m.Ensure(t.Context(), p, &corev1.Container{Name: "c", Image: image, ImagePullPolicy: policy}, nil)
		if why, ok := errors.AsType[*fact.Waiting](err); ok {
			return "", why.Reason + ": " + why.Message
		} else if err != nil {
			return "", err.Error()
		}
		if got.GetUid().GetValue() != 1000 {
			t.Errorf("%s runs as %v", image, got.GetUid())
		}
		return got.Id, strings.Join(s.told, "\n")
	}
	id, said := ensure("open.test/one:1", corev1.PullIfNotPresent, "a")
	if id == "" || !strings.Contains(said, `Successfully pulled image "open.test/one:1" in `) || strings.Contains(said, "size: 0 bytes") {
		t.Errorf("got %q: %s", id, said)
	}
	if again, said := ensure("open.test/one:1", corev1.PullIfNotPresent, "b"); again != id ||
		!strings.Contains(said, "already present on machine and can be accessed by the pod") {
		t.Errorf("got %q: %s", again, said)
	}
	if _, said := ensure("open.test/none:1", corev1.PullIfNotPresent, "a"); !strings.HasPrefix(said, "ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image \"open.test/none:1\"") {
		t.Errorf("got %s", said)
	}
	if _, said := ensure("open.test/none:1", corev1.PullIfNotPresent, "a"); !strings.HasPrefix(said, `ImagePullBackOff: Back-off pulling image "open.test/none:1": ErrImagePull: rpc error`) {
		t.Errorf("got %s", said)
	}
	if _, said := ensure("closed.test/mine:1", corev1.PullIfNotPresent, "a"); !strings.HasPrefix(said, "ErrImagePull: ") {
		t.Errorf("got %s", said)
	}
	m.backoff = newBackoff()
	private, said := ensure("closed.test/mine:1", corev1.PullIfNotPresent, "a", "right")
	if private == "" {
		t.Fatal(said)
	}
	// It is here now, and others still need a login.
	if got, said := ensure("closed.test/mine:1", corev1.PullNever, "b"); got != "" {
		t.Errorf("somebody without a login gets it: %s", said)
	}
	if got, said := ensure("closed.test/mine:1", corev1.PullNever, "b", "right"); got != private {
		t.Errorf("somebody with a login does not get it: %s", said)
	}
	before := open.Pulled("two").Blobs
	if _, said := ensure("open.test/two:1", corev1.PullAlways, "a"); !strings.Contains(said, "Pulled") {
		t.Error(said)
	}
	if open.Pulled("two").Blobs == before {
		t.Error("nothing was fetched")
	}
	collect(t, m, rt, id)
}

// collect removes what nobody uses; the image of sandboxes stays.
func collect(t *testing.T, m *Images, rt nodetest.Runtime, gone string) {
	c, err := NewCollector(OfCRI(rt.Client), m, GCSettings{High: 100, Low: 80, Min: 0}, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if size, free, err := c.store.DiskSpace(t.Context()); err != nil || size == 0 || free == 0 || free > size {
		t.Errorf("the disk has %d bytes, %d are free: %v", size, free, err)
	}
	if err := c.Collect(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.DeleteUnused(t.Context()); err != nil {
		t.Error(err)
	}
	list, err := c.store.List(t.Context())
	if err != nil || len(list) != 1 || !list[0].Pinned {
		t.Errorf("left are %v, %v; %s should be gone", list, err, gone)
	}
}

// registrySecret provides a Secret with the registry's login.
type registrySecret struct{ *registry.Registry }

func (r registrySecret) Secret(_ context.Context, p *corev1.Pod, name string) (*corev1.Secret, error) {
	if name != "right" {
		return nil, fmt.Errorf("no secret %s", name)
	}
	o := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: r.DockerConfig("closed.test")}}
	o.Namespace, o.Name, o.UID = p.Namespace, name, "secret"
	return o, nil
}
