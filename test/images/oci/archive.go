package oci

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
)

// maxDocument bounds the manifests and configs that are read into memory.
const maxDocument = 4 << 20

// Archive is an open archive. Its blobs are read from where they lie, so any
// number of readers can use it at the same time.
type Archive struct {
	file   *os.File
	blobs  map[string]span // by digest
	images map[string]descriptor

	mu    sync.Mutex      // guards trees
	trees map[string]Tree // of layers that were read, for images share them
}

type span struct{ offset, size int64 }

// Open looks through an archive and remembers where its blobs are.
func Open(name string) (*Archive, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	a := &Archive{file: file, blobs: map[string]span{}, images: map[string]descriptor{}, trees: map[string]Tree{}}
	if err := a.scan(); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s is not an OCI archive: %w", name, err)
	}
	return a, nil
}

func (a *Archive) scan() error {
	in := tar.NewReader(a.file)
	var top *index
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if !regular(head) {
			continue
		}
		offset, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		name := Clean(head.Name)
		if rest, ok := strings.CutPrefix(name, "blobs/"); ok {
			a.blobs[strings.Replace(rest, "/", ":", 1)] = span{offset, head.Size}
		}
		if name == "index.json" {
			top = &index{}
			if err := json.NewDecoder(io.LimitReader(in, maxDocument)).Decode(top); err != nil {
				return fmt.Errorf("index.json: %w", err)
			}
		}
	}
	if top == nil {
		return errors.New("it has no index.json")
	}
	for _, d := range top.Manifests {
		name := d.Annotations[nameOfImage]
		if _, there := a.blobs[d.Digest]; !there || name == "" {
			return fmt.Errorf("index.json names %q with the manifest %s, which must both be there", name, d.Digest)
		}
		a.images[name] = d
	}
	return nil
}

// Close ends the use of an archive.
func (a *Archive) Close() error { return a.file.Close() }

// Names are the images of an archive, sorted.
func (a *Archive) Names() []string { return slices.Sorted(maps.Keys(a.images)) }

// Digest is that of the manifest of an image.
func (a *Archive) Digest(name string) (string, bool) {
	d, ok := a.images[name]
	return d.Digest, ok
}

// Blob is a blob by its digest.
func (a *Archive) Blob(digest string) (*io.SectionReader, bool) {
	s, ok := a.blobs[digest]
	return io.NewSectionReader(a.file, s.offset, s.size), ok
}

func (a *Archive) document(digest string, into any) error {
	blob, ok := a.Blob(digest)
	if !ok {
		return fmt.Errorf("the archive lacks the blob %s", digest)
	}
	if err := json.NewDecoder(io.LimitReader(blob, maxDocument)).Decode(into); err != nil {
		return fmt.Errorf("blob %s: %w", digest, err)
	}
	return nil
}

// Blobs are the digests of the config and of the layers of an image.
func (a *Archive) Blobs(name string) ([]string, error) {
	m, err := a.manifest(name)
	if err != nil {
		return nil, err
	}
	all := []string{m.Config.Digest}
	for _, l := range m.Layers {
		all = append(all, l.Digest)
	}
	return all, nil
}

func (a *Archive) manifest(name string) (m manifest, err error) {
	digest, ok := a.Digest(name)
	if !ok {
		return m, fmt.Errorf("the archive has no image %s, only %s", name, strings.Join(a.Names(), ", "))
	}
	return m, a.document(digest, &m)
}

// Image reads what a container of an image would see: its process, and the
// files of all its layers as one tree. What it reads stays in memory until Close.
func (a *Archive) Image(name string) (Process, Tree, error) {
	m, err := a.manifest(name)
	if err != nil {
		return Process{}, nil, err
	}
	var c config
	if err := a.document(m.Config.Digest, &c); err != nil {
		return Process{}, nil, err
	}
	t := Tree{}
	for _, l := range m.Layers {
		layer, err := a.layer(l.Digest)
		if err != nil {
			return Process{}, nil, fmt.Errorf("layer %s of %s: %w", l.Digest, name, err)
		}
		maps.Copy(t, layer)
	}
	return c.Config, t, nil
}

func (a *Archive) layer(digest string) (Tree, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.trees[digest]; ok {
		return t, nil
	}
	blob, ok := a.Blob(digest)
	if !ok {
		return nil, errors.New("the archive lacks it")
	}
	unzip, err := gzip.NewReader(blob)
	if err != nil {
		return nil, err
	}
	t := Tree{}
	if err := t.Read(unzip, func(name string) string { return name }); err != nil {
		return nil, err
	}
	a.trees[digest] = t
	return t, nil
}

// Extend makes another image of one of the archive, with a layer on top. The
// blobs are those that the archive lacks, the manifest last.
func (a *Archive) Extend(name string, top Layer) ([]Blob, error) {
	m, err := a.manifest(name)
	if err != nil {
		return nil, err
	}
	var c config
	if err := a.document(m.Config.Digest, &c); err != nil {
		return nil, err
	}
	c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, top.DiffID)
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	settings := newBlob(mediaConfig, data)
	m.Config = describe(settings)
	m.Layers = append(m.Layers, describe(top.Blob))
	if data, err = json.Marshal(m); err != nil {
		return nil, err
	}
	return []Blob{top.Blob, settings, newBlob(mediaManifest, data)}, nil
}

// Resolve follows links in a tree until it is at something else, and says what
// is there. Links that lead in a circle, or nowhere, lead to nothing.
func (t Tree) Resolve(name string) (string, bool) {
	done, rest := "", Clean(name)
	for range 1000 {
		if rest == "" {
			_, there := t[done]
			return done, there
		}
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		at := Clean(path.Join(done, part))
		f, there := t[at]
		switch {
		case !there:
			return "", false
		case f.Type != tar.TypeSymlink:
			done = at
		case strings.HasPrefix(f.Link, "/"):
			done, rest = "", Clean(path.Join(f.Link, rest))
		default:
			done, rest = "", Clean(path.Join(done, f.Link, rest))
		}
	}
	return "", false
}
