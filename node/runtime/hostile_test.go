package runtime

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestHostileLayers imports images whose layers try to write, link and delete outside of themselves: nothing outside changes, whether
// the import succeeds or not, and the next image can be imported.
func TestHostileLayers(t *testing.T) {
	r := startRuntime(t, newConfig(t))
	defer r.Detach()
	outside := t.TempDir()
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := "../../../../../../../../../../.."
	for name, entries := range map[string][]tar.Header{
		"parents": {{Name: up + outside + "/new", Typeflag: tar.TypeReg, Size: 1}},
		"root":    {{Name: outside + "/new", Typeflag: tar.TypeReg, Size: 1}},
		"link": {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "out/new", Typeflag: tar.TypeReg, Size: 1},
			{Name: "out/precious", Typeflag: tar.TypeReg, Size: 1}},
		"relative link": {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: up + outside},
			{Name: "out/new", Typeflag: tar.TypeReg, Size: 1}},
		"hard link": {{Name: "h", Typeflag: tar.TypeLink, Linkname: up + precious}, {Name: "h", Typeflag: tar.TypeReg, Size: 1}},
		"whiteout": {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "out/.wh.precious", Typeflag: tar.TypeReg},
			{Name: "out/.wh..wh..opq", Typeflag: tar.TypeReg}, {Name: up + outside + "/.wh.precious", Typeflag: tar.TypeReg}},
		"whiteout of parents": {{Name: ".wh...", Typeflag: tar.TypeReg}, {Name: "a/.wh...", Typeflag: tar.TypeReg}},
	} {
		_, err := ImportImages(t.Context(), r.Socket(), bytes.NewReader(archiveOf(t, "proa.test/hostile:1", layerOf(t, entries), nil)))
		t.Logf("%s: %v", name, err)
		text, err := os.ReadFile(precious)
		all, err2 := os.ReadDir(outside)
		if err != nil || string(text) != "kept" || err2 != nil || len(all) != 1 {
			t.Errorf("%s: outside there is %q, %v, %v", name, text, all, err)
		}
	}
	if _, err := ImportImages(t.Context(), r.Socket(), bytes.NewReader(ociArchive(t, "proa.test/a:1"))); err != nil {
		t.Error(err)
	}
}

// layerOf returns a layer with entries; each file has as many zeros as its size says.
func layerOf(t *testing.T, entries []tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range entries {
		entries[i].Mode = 0o644
		if err := w.WriteHeader(&entries[i]); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, entries[i].Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// archiveOf returns an OCI archive with an image of one layer, and further fields of its configuration.
func archiveOf(t *testing.T, name string, layer []byte, more map[string]string) []byte {
	t.Helper()
	var a archive
	l := a.add(typeLayer, layer)
	c := a.addJSON(typeConfig, map[string]any{"os": "linux", "architecture": platform().arch, "config": map[string]any{"Labels": more},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{l.Digest}}})
	m := a.addJSON(typeManifest, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": c, "layers": []descriptor{l}})
	m.Annotations = map[string]string{annotationRef: name}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{m}})
	if err != nil {
		t.Fatal(err)
	}
	all := []file{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644}, {"index.json", top, 0o644}}
	out, err := tarOf(append(all, a.blobs...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
