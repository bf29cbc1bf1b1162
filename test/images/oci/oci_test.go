package oci

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func layer(t *testing.T, tree Tree) Layer {
	t.Helper()
	l, err := tree.Layer()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sample returns two images that share a layer.
func sample(t *testing.T) []Image {
	base := Tree{}
	base.Text("usr/bin/text", "hello")
	base.Link("bin", "usr/bin")
	base.Dir(0o1777, "tmp")
	base.Parents()
	above := Tree{}
	above.Put("usr/bin/raise", 0o4755, []byte("program"))
	above["usr/bin/same"] = File{Type: tar.TypeLink, Mode: 0o4755, Link: "usr/bin/raise"}
	above["home"] = File{Type: tar.TypeDir, Mode: 0o700, UID: 1000, GID: 50, Time: time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)}
	low, high := layer(t, base), layer(t, above)
	return []Image{
		{Names: []string{"a.test/one:1", "a.test/same:1"}, Process: Process{Cmd: []string{"text"}}, Layers: []Layer{low}},
		{Names: []string{"a.test/two:2"},
			Process: Process{User: "7:8", Entrypoint: []string{"/raise"}, ExposedPorts: map[string]struct{}{"80/tcp": {}}},
			Layers:  []Layer{low, high}},
	}
}

func write(t *testing.T, images ...Image) (string, []byte) {
	t.Helper()
	var data bytes.Buffer
	if err := Write(&data, images...); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "archive.tar")
	if err := os.WriteFile(name, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name, data.Bytes()
}

func TestWrittenIsRead(t *testing.T) {
	images := sample(t)
	name, _ := write(t, images...)
	a, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if want := []string{"a.test/one:1", "a.test/same:1", "a.test/two:2"}; !reflect.DeepEqual(a.Names(), want) {
		t.Errorf("names %v; want %v", a.Names(), want)
	}
	process, tree, err := a.Image("a.test/two:2")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(process, images[1].Process) {
		t.Errorf("process %+v; want %+v", process, images[1].Process)
	}
	raise, home := tree["usr/bin/raise"], tree["home"]
	if raise.Mode != 0o4755 || string(raise.Data) != "program" || tree["usr/bin/same"].Link != "usr/bin/raise" {
		t.Errorf("raise %+v, same %+v", raise, tree["usr/bin/same"])
	}
	if home.Mode != 0o700 || home.UID != 1000 || home.GID != 50 || home.Time.Year() != 2020 {
		t.Errorf("home %+v", home)
	}
	if tree["tmp"].Mode != 0o1777 || tree["usr"].Mode != 0o755 || !tree["usr"].Time.Equal(birthday()) {
		t.Errorf("tmp %+v, usr %+v", tree["tmp"], tree["usr"])
	}
	if _, _, err := a.Image("a.test/none:1"); err == nil || !strings.Contains(err.Error(), "a.test/one:1") {
		t.Errorf("an image that is not there: %v; want what is there", err)
	}
}

// TestSharedOnce counts blobs: two layers, two configs, two manifests.
func TestSharedOnce(t *testing.T) {
	name, _ := write(t, sample(t)...)
	a, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if len(a.blobs) != 6 {
		t.Errorf("%d blobs; want 6", len(a.blobs))
	}
	for digest := range a.blobs {
		blob, _ := a.Blob(digest)
		data, err := io.ReadAll(blob)
		if got := newBlob("", data).Digest; err != nil || got != digest {
			t.Errorf("the blob %s has the digest %s, %v", digest, got, err)
		}
	}
}

func TestSameBytes(t *testing.T) {
	_, first := write(t, sample(t)...)
	_, second := write(t, sample(t)...)
	if !bytes.Equal(first, second) {
		t.Error("the same images gave different bytes")
	}
}

func TestExtend(t *testing.T) {
	name, _ := write(t, sample(t)...)
	a, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	blobs, err := a.Extend("a.test/one:1", layer(t, Tree{"x": {Type: tar.TypeReg}}))
	if err != nil || len(blobs) != 3 || blobs[2].MediaType != mediaManifest {
		t.Fatalf("%d blobs, %v; want a layer, a config and a manifest", len(blobs), err)
	}
	if _, there := a.Blob(blobs[2].Digest); there {
		t.Error("the manifest is not new")
	}
}

func TestResolve(t *testing.T) {
	tree := Tree{}
	tree.Text("usr/bin/dash", "")
	tree.Link("usr/bin/sh", "dash")
	tree.Link("bin", "usr/bin")
	tree.Link("abs", "/usr/bin/sh")
	tree.Link("up", "../../bin/sh")
	tree.Link("loop", "loop")
	tree.Link("gone", "nowhere")
	tree.Parents()
	for name, want := range map[string]string{
		"/bin/sh": "usr/bin/dash", "abs": "usr/bin/dash", "up": "usr/bin/dash", "usr/bin": "usr/bin",
		"/usr/bin/../bin/dash": "usr/bin/dash",
		"loop":                 "", "gone": "", "bin/none": "",
	} {
		if got, ok := tree.Resolve(name); got != want || ok != (want != "") {
			t.Errorf("%s leads to %q, %v; want %q", name, got, ok, want)
		}
	}
}

func TestBadArchives(t *testing.T) {
	tarOf := func(files map[string]string) []byte {
		tree := Tree{}
		for name, text := range files {
			tree.Text(name, text)
		}
		var data bytes.Buffer
		if err := tree.write(&data); err != nil {
			t.Fatal(err)
		}
		return data.Bytes()
	}
	for want, data := range map[string][]byte{
		"it has no index.json":      tarOf(map[string]string{"x": "y"}),
		"index.json: invalid":       tarOf(map[string]string{"index.json": "y"}),
		"which must both be there":  tarOf(map[string]string{"index.json": `{"manifests":[{"digest":"sha256:1"}]}`}),
		"is not an OCI archive: ar": []byte(strings.Repeat("not a tar file", 100)),
	} {
		name := filepath.Join(t.TempDir(), "bad.tar")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if err := (Tree{}).Read(bytes.NewReader(device(t)), func(name string) string { return name }); err == nil {
		t.Error("a device got into a tree")
	}
}

func device(t *testing.T) []byte {
	var data bytes.Buffer
	out := tar.NewWriter(&data)
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeChar, Name: "dev/null"}); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// FuzzOpen checks that no input makes reading panic, and that an archive that opens can be read.
func FuzzOpen(f *testing.F) {
	tree := Tree{}
	tree.Text("index.json", `{"manifests":[{"digest":"sha256:1","annotations":{"io.containerd.image.name":"a:1"}}]}`)
	tree.Text("blobs/sha256/1", `{"layers":[{"digest":"sha256:1"}],"config":{"digest":"sha256:1"}}`)
	var data bytes.Buffer
	if err := tree.write(&data); err != nil {
		f.Fatal(err)
	}
	f.Add(data.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		name := filepath.Join(t.TempDir(), "archive.tar")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := Open(name)
		if err != nil {
			return
		}
		defer a.Close()
		for _, image := range a.Names() {
			_, _, _ = a.Image(image)
		}
	})
}
