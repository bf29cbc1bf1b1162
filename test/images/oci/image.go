package oci

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The media types of what an archive holds.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// The annotations by which an archive names its images.
const (
	nameOfImage = "io.containerd.image.name"
	nameOfTag   = "org.opencontainers.image.ref.name"
)

// Blob is bytes with their address.
type Blob struct {
	MediaType string
	Digest    string
	Data      []byte
}

func newBlob(media string, data []byte) Blob {
	h := newHash()
	h.Write(data)
	return Blob{MediaType: media, Digest: sum(h), Data: data}
}

func newHash() hash.Hash { return sha256.New() }

func sum(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// Process is what an image says of the process that runs in it.
type Process struct {
	User         string              `json:",omitempty"`
	ExposedPorts map[string]struct{} `json:",omitempty"`
	Env          []string            `json:",omitempty"`
	Entrypoint   []string            `json:",omitempty"`
	Cmd          []string            `json:",omitempty"`
	WorkingDir   string              `json:",omitempty"`
	Labels       map[string]string   `json:",omitempty"`
	StopSignal   string              `json:",omitempty"`
}

// Image is layers, lowest first, and a process, under one or more names.
type Image struct {
	Names   []string
	Process Process
	Layers  []Layer
}

type config struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       Process   `json:"config"`
	RootFS       struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

func describe(b Blob) descriptor {
	return descriptor{MediaType: b.MediaType, Digest: b.Digest, Size: int64(len(b.Data))}
}

// blobs are all that an image consists of, the manifest last.
func (i Image) blobs() ([]Blob, error) {
	c := config{Created: birthday(), Architecture: runtime.GOARCH, OS: "linux", Config: i.Process}
	c.RootFS.Type = "layers"
	m := manifest{SchemaVersion: 2, MediaType: mediaManifest}
	var all []Blob
	for _, l := range i.Layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, l.DiffID)
		m.Layers = append(m.Layers, describe(l.Blob))
		all = append(all, l.Blob)
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	settings := newBlob(mediaConfig, data)
	m.Config = describe(settings)
	if data, err = json.Marshal(m); err != nil {
		return nil, err
	}
	return append(all, settings, newBlob(mediaManifest, data)), nil
}

// Write packs images into one archive. Layers that they share are in it once,
// and the same images give the same bytes.
func Write(to io.Writer, images ...Image) error {
	all := map[string]Blob{}
	top := index{SchemaVersion: 2, MediaType: mediaIndex}
	for _, i := range images {
		blobs, err := i.blobs()
		if err != nil {
			return err
		}
		for _, b := range blobs {
			all[b.Digest] = b
		}
		for _, name := range i.Names {
			d := describe(blobs[len(blobs)-1])
			d.Annotations = map[string]string{nameOfImage: name, nameOfTag: name[strings.LastIndexByte(name, ':')+1:]}
			top.Manifests = append(top.Manifests, d)
		}
	}
	slices.SortFunc(top.Manifests, func(a, b descriptor) int {
		return cmp.Compare(a.Annotations[nameOfImage], b.Annotations[nameOfImage])
	})
	data, err := json.Marshal(top)
	if err != nil {
		return err
	}
	t := Tree{}
	t.Text("oci-layout", `{"imageLayoutVersion":"1.0.0"}`)
	t.Put("index.json", 0o644, data)
	for digest := range maps.Keys(all) {
		t.Put(blobPath(digest), 0o644, all[digest].Data)
	}
	t.Parents()
	return t.write(to)
}

func blobPath(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

// regular tells whether an entry of an archive is one that can hold a blob.
func regular(h *tar.Header) bool { return h.Typeflag == tar.TypeReg }
