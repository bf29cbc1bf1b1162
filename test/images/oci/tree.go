// Package oci writes and reads container images as OCI archives: one tar file
// with the blobs of one or more images, which containerd imports as it is. It
// is written against the format, not with a library, because what tests need of
// it is small: layers from memory, the same bytes for the same input, and blobs
// that a registry can serve without unpacking the archive. It owns no state.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// File is one entry of a layer.
type File struct {
	Type     byte  // as in package tar
	Mode     int64 // permission bits with setuid, setgid and sticky
	UID, GID int
	Link     string // where a link points to
	Time     time.Time
	Data     []byte
}

// Tree is what a layer adds to an image, by path without a leading slash. A
// path that is set twice has what was set last.
type Tree map[string]File

// birthday is the time of everything that has none of its own, so that the
// same input gives the same bytes.
func birthday() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// Put adds a file of root.
func (t Tree) Put(name string, mode int64, data []byte) {
	t[name] = File{Type: tar.TypeReg, Mode: mode, Data: data}
}

// Text adds a file of root that everybody can read.
func (t Tree) Text(name, text string) { t.Put(name, 0o644, []byte(text)) }

// Link adds a symbolic link.
func (t Tree) Link(name, target string) {
	t[name] = File{Type: tar.TypeSymlink, Mode: 0o777, Link: target}
}

// Dir adds folders of root with one mode.
func (t Tree) Dir(mode int64, names ...string) {
	for _, name := range names {
		t[name] = File{Type: tar.TypeDir, Mode: mode}
	}
}

// Parents adds the folders that files are in and nobody added. Only the lowest
// layer of an image wants them: above another one they would change the modes
// of its folders, and turn its links to folders into folders.
func (t Tree) Parents() {
	for _, name := range slices.Collect(maps.Keys(t)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, there := t[dir]; !there {
				t.Dir(0o755, dir)
			}
		}
	}
}

// Layer is a packed tree: the blob, and the digest of what is packed in it.
type Layer struct {
	Blob
	DiffID string
}

// Layer packs a tree, in the order of its paths, which puts folders before what
// is in them.
func (t Tree) Layer() (Layer, error) {
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return Layer{}, err
	}
	diff := newHash()
	if err := t.write(io.MultiWriter(zip, diff)); err != nil {
		return Layer{}, err
	}
	if err := zip.Close(); err != nil {
		return Layer{}, err
	}
	return Layer{Blob: newBlob(mediaLayer, packed.Bytes()), DiffID: sum(diff)}, nil
}

func (t Tree) write(to io.Writer) error {
	out := tar.NewWriter(to)
	// A hard link must come after what it links to.
	rank := func(name string) string {
		if t[name].Type == tar.TypeLink {
			return "1" + name
		}
		return "0" + name
	}
	names := slices.SortedFunc(maps.Keys(t), func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
	for _, name := range names {
		f := t[name]
		head := &tar.Header{Typeflag: f.Type, Name: name, Linkname: f.Link, Mode: f.Mode, Uid: f.UID, Gid: f.GID, ModTime: f.Time,
			Size: int64(len(f.Data))}
		if f.Type == tar.TypeDir {
			head.Name += "/"
		}
		if f.Time.IsZero() {
			head.ModTime = birthday()
		}
		if err := out.WriteHeader(head); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := out.Write(f.Data); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	return out.Close()
}

// Read adds what a tar file holds. Rename gives the path that an entry gets; an
// entry that gets none is left out.
func (t Tree) Read(from io.Reader, rename func(string) string) error {
	in := tar.NewReader(from)
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := rename(Clean(head.Name))
		if name == "" {
			continue
		}
		f := File{Type: head.Typeflag, Mode: head.Mode, UID: head.Uid, GID: head.Gid, Link: head.Linkname, Time: head.ModTime}
		switch head.Typeflag {
		case tar.TypeReg:
			if f.Data, err = io.ReadAll(in); err != nil {
				return fmt.Errorf("read %s: %w", head.Name, err)
			}
		case tar.TypeLink:
			f.Link = rename(Clean(head.Linkname))
		case tar.TypeDir, tar.TypeSymlink:
		default:
			return fmt.Errorf("%s has the type %q, which no image here needs", head.Name, head.Typeflag)
		}
		t[name] = f
	}
}

// Clean is a path as the keys of a tree are written; the root is empty.
func Clean(name string) string {
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}
