package runtime

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/node/cri"
)

// startRegistry starts a registry with one image, which it serves under any name and tag.
func startRegistry(t *testing.T) *httptest.Server {
	t.Helper()
	layer, err := tarOf([]file{{"pulled", []byte("yes"), 0o644}})
	if err != nil {
		t.Fatal(err)
	}
	var a archive
	l := a.add(typeLayer, layer)
	c := a.addJSON(typeConfig, map[string]any{"os": "linux", "architecture": platform().arch,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{l.Digest}}})
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": c, "layers": []descriptor{l}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", typeManifest)
			w.Header().Set("Content-Length", fmt.Sprint(len(manifest)))
			_, _ = w.Write(manifest)
		case strings.Contains(r.URL.Path, "/blobs/sha256:"):
			for _, b := range a.blobs {
				if filepath.Base(b.name) == r.URL.Path[strings.LastIndexByte(r.URL.Path, ':')+1:] {
					_, _ = w.Write(b.data)
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestMirrors pulls an image of a registry that does not exist from a mirror, which the second of two folders names.
func TestMirrors(t *testing.T) {
	c := newConfig(t)
	one, two := t.TempDir(), t.TempDir()
	c.RegistryDirs = []string{one, two}
	hosts := filepath.Join(two, "registry.proa.test")
	if err := os.MkdirAll(hosts, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("server = \"https://registry.proa.test\"\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", startRegistry(t).URL)
	if err := os.WriteFile(filepath.Join(hosts, "hosts.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r := startRuntime(t, c)
	defer r.Detach()
	client := connect(t, r)
	const name = "registry.proa.test/some/image:1"
	if _, err := client.Images.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: name}}); err != nil {
		t.Fatalf("pull: %v", err)
	}
	if imageID(t.Context(), client, name) == "" {
		t.Error("the pulled image is not present")
	}
}

func TestHandlers(t *testing.T) {
	c := newConfig(t)
	c.Handlers = []Handler{{Name: "other", Binary: filepath.Join(c.BinDir, "runc")}}
	c.DefaultHandler = "other"
	r := startRuntime(t, c)
	defer r.Detach()
	client := connect(t, r)
	for _, handler := range []string{"", "other", "runc"} {
		config := pauseSandbox(c, "p"+handler)
		made, err := client.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
		if err != nil {
			t.Errorf("handler %q: %v", handler, err)
			continue
		}
		// The state folder of a sandbox is below that of its handler.
		want := map[string]string{"": "other", "other": "other", "runc": "runc"}[handler]
		if !isFolder(filepath.Join(r.layout.state, want, namespace, made.PodSandboxId)) {
			t.Errorf("handler %q: the sandbox is not one of %s", handler, want)
		}
	}
	if _, err := client.RunPodSandbox(t.Context(),
		&cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "x", Uid: "x"}},
			RuntimeHandler: "none"}); err == nil {
		t.Error("a handler that is not configured was used")
	}
}
