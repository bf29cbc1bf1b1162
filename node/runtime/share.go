package runtime

import (
	"archive/tar"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ShareImages copies imported images from the runtime of one folder to that of another, if it lacks them, and returns their
// names. Images that were pulled from a registry are not shared: who may use them is decided by the registry.
func ShareImages(ctx context.Context, from, to string) ([]string, error) {
	here, err := ListImages(ctx, Socket(from))
	if err != nil {
		return nil, err
	}
	there, err := ListImages(ctx, Socket(to))
	if err != nil {
		return nil, err
	}
	here = slices.DeleteFunc(here, func(i Image) bool {
		return !i.Pinned || i.Name == PauseImage ||
			slices.ContainsFunc(there, func(x Image) bool { return x.Name == i.Name && x.Digest == i.Digest })
	})
	if len(here) == 0 {
		return nil, nil
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(export(newLayout(from).blobs(), here, w)) }()
	defer r.Close()
	return ImportImages(ctx, Socket(to), r)
}

// blobs returns where containerd stores the contents of images.
func (l layout) blobs() string {
	return filepath.Join(l.root, "io.containerd.content.v1.content", "blobs", "sha256")
}

// export writes an archive of images whose blobs are in a folder.
func export(blobs string, images []Image, to io.Writer) error {
	w := tar.NewWriter(to)
	top := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, i := range images {
		d := i.target
		d.Annotations = map[string]string{annotationName: i.Name}
		top.Manifests = append(top.Manifests, d)
	}
	list, err := json.Marshal(top)
	if err != nil {
		return err
	}
	for _, f := range []file{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644}, {"index.json", list, 0o644}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	done := map[string]bool{}
	for _, i := range images {
		if err := exportBlob(w, blobs, i.target, done); err != nil {
			return fmt.Errorf("export %s: %w", i.Name, err)
		}
	}
	return w.Close()
}

// exportBlob writes a blob and the blobs that it refers to.
func exportBlob(w *tar.Writer, blobs string, d descriptor, done map[string]bool) error {
	name, sha := strings.CutPrefix(d.Digest, "sha256:")
	if _, err := hex.DecodeString(name); err != nil || !sha || len(name) != 64 {
		return fmt.Errorf("%q is no digest of the kind that containerd has", d.Digest)
	}
	if done[name] {
		return nil
	}
	done[name] = true
	f, err := os.Open(filepath.Join(blobs, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: "blobs/sha256/" + name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	if !strings.Contains(d.MediaType, "manifest") && !strings.Contains(d.MediaType, "index") {
		_, err := io.Copy(w, f)
		return err
	}
	if info.Size() > maxIndex {
		return fmt.Errorf("the manifest %s has %d bytes, more than %d", d.Digest, info.Size(), maxIndex)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	var parts struct {
		Manifests, Layers []descriptor
		Config            *descriptor
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return fmt.Errorf("read the manifest %s: %w", d.Digest, err)
	}
	// Of an image for several platforms only that of this machine may be present.
	for _, m := range parts.Manifests {
		if err := exportBlob(w, blobs, m, done); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if parts.Config != nil {
		parts.Layers = append(parts.Layers, *parts.Config)
	}
	for _, l := range parts.Layers {
		if err := exportBlob(w, blobs, l, done); err != nil {
			return err
		}
	}
	return nil
}
