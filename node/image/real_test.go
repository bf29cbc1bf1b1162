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

// startRegistry starts a registry with a small image for each name, which the runtime reaches under a host name.
func startRegistry(t *testing.T, rt nodetest.Runtime, host string, auth registry.Auth, names ...string) *registry.Registry {
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

// TestOnRealRuntime pulls images from registries with a real runtime.
func TestOnRealRuntime(t *testing.T) {
	rt := nodetest.StartRuntime(t)
	open := startRegistry(t, rt, "open.test", registry.Anonymous, "one", "two")
	closed := startRegistry(t, rt, "closed.test", registry.Token, "mine")
	s := newFakeRuntime()
	m, err := New(Config{Service: OfCRI(rt.Client), Secrets: registrySecret{closed}, Events: s, Dir: t.TempDir(), Log: discardLog})
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
		s.events = nil
		got, err := m.Ensure(t.Context(), p, &corev1.Container{Name: "c", Image: image, ImagePullPolicy: policy}, nil)
		if why, ok := errors.AsType[*fact.Waiting](err); ok {
			return "", why.Reason + ": " + why.Message
		} else if err != nil {
			return "", err.Error()
		}
		if got.GetUid().GetValue() != 1000 {
			t.Errorf("%s runs as %v", image, got.GetUid())
		}
		return got.Id, strings.Join(s.events, "\n")
	}
	id, events := ensure("open.test/one:1", corev1.PullIfNotPresent, "a")
	if id == "" || !strings.Contains(events, `Successfully pulled image "open.test/one:1" in `) ||
		strings.Contains(events, "size: 0 bytes") {
		t.Errorf("got %q: %s", id, events)
	}
	if again, events := ensure("open.test/one:1", corev1.PullIfNotPresent, "b"); again != id ||
		!strings.Contains(events, "already present on machine and can be accessed by the pod") {
		t.Errorf("got %q: %s", again, events)
	}
	if _, events := ensure("open.test/none:1", corev1.PullIfNotPresent, "a"); !strings.HasPrefix(events, "ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image \"open.test/none:1\"") {
		t.Errorf("got %s", events)
	}
	if _, events := ensure("open.test/none:1", corev1.PullIfNotPresent, "a"); !strings.HasPrefix(events, `ImagePullBackOff: Back-off pulling image "open.test/none:1": ErrImagePull: rpc error`) {
		t.Errorf("got %s", events)
	}
	if _, events := ensure("closed.test/mine:1", corev1.PullIfNotPresent, "a"); !strings.HasPrefix(events, "ErrImagePull: ") {
		t.Errorf("got %s", events)
	}
	m.backoff = newBackoff()
	privateID, events := ensure("closed.test/mine:1", corev1.PullIfNotPresent, "a", "right")
	if privateID == "" {
		t.Fatal(events)
	}
	// The image is present now, and other Pods still need a login.
	if got, events := ensure("closed.test/mine:1", corev1.PullNever, "b"); got != "" {
		t.Errorf("a Pod without a login may use it: %s", events)
	}
	if got, events := ensure("closed.test/mine:1", corev1.PullNever, "b", "right"); got != privateID {
		t.Errorf("a Pod with a login may not use it: %s", events)
	}
	before := open.Pulled("two").Blobs
	if _, events := ensure("open.test/two:1", corev1.PullAlways, "a"); !strings.Contains(events, "Pulled") {
		t.Error(events)
	}
	if open.Pulled("two").Blobs == before {
		t.Error("no blob was fetched")
	}
	testCollect(t, m, rt, id)
}

// testCollect checks that unused images are removed, and that the image of sandboxes is kept.
func testCollect(t *testing.T, m *Images, rt nodetest.Runtime, unused string) {
	c, err := NewCollector(OfCRI(rt.Client), m, GCSettings{High: 100, Low: 80, Min: 0}, nil, discardLog)
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
		t.Errorf("remaining: %v, %v; %s should be removed", list, err, unused)
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
