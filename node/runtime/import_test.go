package runtime

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// ociArchive returns an OCI archive with an image for each name.
func ociArchive(t *testing.T, names ...string) []byte {
	t.Helper()
	var a archive
	var list []descriptor
	for _, name := range names {
		layer, err := tarOf([]file{{"name", []byte(name), 0o644}})
		if err != nil {
			t.Fatal(err)
		}
		l := a.add(typeLayer, layer)
		c := a.addJSON(typeConfig, map[string]any{"os": "linux", "architecture": platform().arch,
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{l.Digest}}})
		m := a.addJSON(typeManifest, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": c, "layers": []descriptor{l}})
		if name != "" {
			m.Annotations = map[string]string{annotationRef: name}
		}
		list = append(list, m)
	}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: list})
	if err != nil {
		t.Fatal(err)
	}
	out, err := tarOf(slices.Concat([]file{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644}, {"index.json", top, 0o644}},
		a.blobs))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// dockerArchive returns an archive in the format of older versions of "docker save".
func dockerArchive(t *testing.T, tags ...string) []byte {
	t.Helper()
	layer, err := tarOf([]file{{"docker", []byte(strings.Join(tags, " ")), 0o644}})
	if err != nil {
		t.Fatal(err)
	}
	var a archive
	digest := a.add("", layer).Digest
	config, err := json.Marshal(map[string]any{"os": "linux", "architecture": platform().arch,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest}}})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(config)
	name := hex.EncodeToString(sum[:]) + ".json"
	manifest, err := json.Marshal([]map[string]any{{"Config": name, "RepoTags": tags, "Layers": []string{"1/layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := tarOf([]file{{name, config, 0o644}, {"1/layer.tar", layer, 0o644}, {"manifest.json", manifest, 0o644}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImport(t *testing.T) {
	r := startRuntime(t, newConfig(t))
	defer r.Detach()
	// pipe returns a reader without Seek.
	pipe := func(data []byte) io.Reader { return struct{ io.Reader }{bytes.NewReader(data)} }
	broken := ociArchive(t, "proa.test/broken:1")
	for _, c := range []struct {
		name    string
		archive io.Reader
		want    []string
		fails   string
	}{
		{"two images", pipe(ociArchive(t, "proa.test/a:1", "proa.test/b:1")), []string{"proa.test/a:1", "proa.test/b:1"}, ""},
		{"compressed", bytes.NewReader(gzipped(t, ociArchive(t, "proa.test/c:1"))), []string{"proa.test/c:1"}, ""},
		{"short name", pipe(ociArchive(t, "short")), []string{unnamed + ":short"}, ""},
		{"name without registry", pipe(ociArchive(t, "user/short:2")), []string{"docker.io/user/short:2"}, ""},
		{"the same again", pipe(ociArchive(t, "user/short:2")), []string{"docker.io/user/short:2"}, ""},
		{"docker", pipe(dockerArchive(t, "d:1", "e.io/d:2")), []string{"docker.io/library/d:1", "e.io/d:2"}, ""},
		{"compressed docker", pipe(gzipped(t, dockerArchive(t, "e.io/d:3"))), []string{"e.io/d:3"}, ""},
		{"no name", pipe(ociArchive(t, "")), nil, "no image of the archive has a name"},
		{"no archive", pipe([]byte("hello")), nil, "import the archive"},
		{"empty", pipe(nil), nil, "import the archive"},
		{"truncated", pipe(broken[:len(broken)/2]), nil, "import the archive"},
		{"unreadable", io.MultiReader(pipe(broken[:1000]), iotest.ErrReader(errors.New("the disk is broken"))), nil, "the disk is broken"},
	} {
		got, err := ImportImages(t.Context(), r.Socket(), c.archive)
		slices.Sort(got)
		if !reflect.DeepEqual(got, c.want) || (c.fails == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %q, %v; want %q %s", c.name, got, err, c.want, c.fails)
		}
	}
	for name, data := range map[string][]byte{
		"an OCI archive":          ociArchive(t, "proa.test/a:1", "proa.test/b:1"),
		"a docker archive":        dockerArchive(t, "d:1", "e.io/d:2"),
		"a zipped archive":        gzipped(t, ociArchive(t, "proa.test/c:1")),
		"a zipped docker archive": gzipped(t, dockerArchive(t, "e.io/d:3")),
	} {
		conn, err := dial(r.Socket())
		if err != nil {
			t.Fatal(err)
		}
		file := bytes.NewReader(data)
		if got, err := presentImages(t.Context(), conn, connect(t, r), file); err != nil || len(got) == 0 || file.Len() != len(data) {
			t.Errorf("%s whose images are present: %q, %v, at %d of %d", name, got, err, file.Len(), len(data))
		}
		if got, err := ImportImages(t.Context(), r.Socket(), file); err != nil || len(got) == 0 || file.Len() != len(data) {
			t.Errorf("%s again: %q, %v, at %d of %d", name, got, err, file.Len(), len(data))
		}
		_ = conn.Close()
	}
	images, err := ListImages(t.Context(), r.Socket())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range images {
		names = append(names, i.Name)
	}
	want := []string{"docker.io/library/d:1", "docker.io/user/short:2", "e.io/d:2", "e.io/d:3", unnamed + ":short", PauseImage,
		"proa.test/a:1", "proa.test/b:1", "proa.test/c:1"}
	if !slices.Equal(names, want) {
		t.Errorf("images %q, want %q", names, want)
	}
}

// TestShareImages copies imported images to another runtime, but none that it has already and none that is not pinned.
func TestShareImages(t *testing.T) {
	a, b := newConfig(t), newConfig(t)
	from, to := startRuntime(t, a), startRuntime(t, b)
	defer from.Detach()
	defer to.Detach()
	for _, data := range [][]byte{ociArchive(t, "proa.test/a:1", "proa.test/b:1"), dockerArchive(t, "d:1"),
		ociArchive(t, "proa.test/pulled:1")} {
		if _, err := ImportImages(t.Context(), from.Socket(), bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ImportImages(t.Context(), to.Socket(), bytes.NewReader(ociArchive(t, "proa.test/a:1"))); err != nil {
		t.Fatal(err)
	}
	conn, err := dial(from.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	target, err := targetOf(t.Context(), conn, "proa.test/pulled:1")
	if err != nil {
		t.Fatal(err)
	}
	unpinned := message{}.bytes(1, message{}.text(1, "proa.test/pulled:1").bytes(3, target)).bytes(2,
		message{}.text(1, "labels.io.cri-containerd.pinned"))
	if _, err := call(t.Context(), conn, "/containerd.services.images.v1.Images/Update", unpinned); err != nil {
		t.Fatal(err)
	}
	names, err := ShareImages(t.Context(), a.DataDir, b.DataDir)
	slices.Sort(names)
	if want := []string{"docker.io/library/d:1", "proa.test/b:1"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("shared %q, %v; want %q", names, err, want)
	}
	if names, err := ShareImages(t.Context(), a.DataDir, b.DataDir); err != nil || len(names) > 0 {
		t.Errorf("shared again: %q, %v", names, err)
	}
	here, err := ListImages(t.Context(), from.Socket())
	if err != nil {
		t.Fatal(err)
	}
	there, err := ListImages(t.Context(), to.Socket())
	if err != nil {
		t.Fatal(err)
	}
	here = slices.DeleteFunc(here, func(i Image) bool { return i.Name == "proa.test/pulled:1" })
	if !reflect.DeepEqual(here, there) {
		t.Errorf("one has %+v\nthe other %+v", here, there)
	}
	if err := os.RemoveAll(newLayout(a.DataDir).blobs()); err != nil {
		t.Fatal(err)
	}
	if err := export(newLayout(a.DataDir).blobs(), here, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "export docker.io/library/d:1: open ") {
		t.Errorf("images without content: %v", err)
	}
}
