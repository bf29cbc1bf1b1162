package runtime

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// ensurePause imports the pause image, unless it is present already.
func (r *Runtime) ensurePause(ctx context.Context) error {
	program, err := os.ReadFile(filepath.Join(r.config.BinDir, "pause"))
	if err != nil {
		return fmt.Errorf("make the image of pause: %w", err)
	}
	archive, err := pauseArchive(program, platform())
	if err != nil {
		return fmt.Errorf("make the image of pause: %w", err)
	}
	if _, err := ImportImages(ctx, r.layout.socket, bytes.NewReader(archive)); err != nil {
		return fmt.Errorf("import the image of pause: %w", err)
	}
	return nil
}

// pauseArchive returns an OCI archive with one image of one layer with one file. The same program gives the same bytes.
func pauseArchive(program []byte, on platformSpec) ([]byte, error) {
	layer, err := tarOf([]file{{"pause", program, 0o755}})
	if err != nil {
		return nil, err
	}
	var a archive
	image := a.add(typeLayer, layer)
	config := a.addJSON(typeConfig, map[string]any{
		"os": on.os, "architecture": on.arch, "config": map[string]any{"Entrypoint": []string{"/pause"}, "User": "65535:65535"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{image.Digest}},
	})
	manifest := a.addJSON(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []descriptor{image},
	})
	manifest.Annotations = map[string]string{annotationName: PauseImage, annotationRef: PauseImage}
	manifest.Platform = &platformJSON{OS: on.os, Architecture: on.arch, Variant: on.variant}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{manifest}})
	if err != nil {
		return nil, err
	}
	front := []file{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644}, {"index.json", top, 0o644}}
	return tarOf(slices.Concat(front, a.blobs))
}

// archive collects the blobs of an OCI archive.
type archive struct{ blobs []file }

func (a *archive) add(kind string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	a.blobs = append(a.blobs, file{"blobs/sha256/" + digest, data, 0o644})
	return descriptor{MediaType: kind, Digest: "sha256:" + digest, Size: int64(len(data))}
}

// addJSON adds an object of simple values, whose encoding cannot fail.
func (a *archive) addJSON(kind string, object map[string]any) descriptor {
	data, _ := json.Marshal(object)
	return a.add(kind, data)
}

// file is one file of a tar archive.
type file struct {
	name string
	data []byte
	mode int64
}

func tarOf(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
