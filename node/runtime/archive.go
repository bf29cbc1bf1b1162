package runtime

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

const (
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
	// maxIndex limits how much of an archive's index is read.
	maxIndex = 4 << 20
)

// descriptor refers to a blob of an archive.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platformJSON     `json:"platform,omitempty"`
}

type platformJSON struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// index is the list of the images in an archive.
type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Manifests     []descriptor `json:"manifests"`
}

// archivedImage is an image of an archive: identified by the digest of its manifest, or by its id, which is the digest of its
// configuration.
type archivedImage struct{ name, digest, id string }

// imagesIn returns which images are in an archive, without keeping what it reads.
func imagesIn(archive io.Reader) ([]archivedImage, error) {
	buffered := bufio.NewReader(archive)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("unzip the archive: %w", err)
		}
		return imagesInTar(unzipped)
	}
	// In a file that is not compressed, the blobs are skipped and not read.
	if file, ok := archive.(io.Seeker); ok {
		if _, err := file.Seek(-int64(buffered.Buffered()), io.SeekCurrent); err != nil {
			return nil, fmt.Errorf("read the archive again: %w", err)
		}
		return imagesInTar(archive)
	}
	return imagesInTar(buffered)
}

// imagesInTar reads the index of an OCI archive, or the manifest of a docker archive if there is no index.
func imagesInTar(archive io.Reader) ([]archivedImage, error) {
	files := tar.NewReader(archive)
	var old []dockerImage
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dockerImages(old), nil
		}
		if err != nil {
			return nil, err
		}
		var list index
		switch path.Clean(h.Name) {
		case "index.json":
			if err := readJSON(h, files, &list); err != nil {
				return nil, err
			}
			return list.images(), nil
		case "manifest.json":
			if err := readJSON(h, files, &old); err != nil {
				return nil, err
			}
		}
	}
}

func readJSON(h *tar.Header, from io.Reader, into any) error {
	if h.Size > maxIndex {
		return fmt.Errorf("%s of the archive has %d bytes, more than %d", h.Name, h.Size, maxIndex)
	}
	if err := json.NewDecoder(io.LimitReader(from, maxIndex)).Decode(into); err != nil {
		return fmt.Errorf("read %s of the archive: %w", h.Name, err)
	}
	return nil
}

// dockerImage is an image in the manifest of a docker archive.
type dockerImage struct {
	Config   string
	RepoTags []string
}

// dockerImages returns the images of a docker archive, if all of their configurations are named after their digests.
func dockerImages(list []dockerImage) (out []archivedImage) {
	for _, i := range list {
		id := strings.TrimSuffix(path.Base(i.Config), ".json")
		if _, err := hex.DecodeString(id); err != nil || len(id) != 64 {
			return nil
		}
		for _, tag := range i.RepoTags {
			out = append(out, archivedImage{name: fullName(tag), id: "sha256:" + id})
		}
	}
	return out
}

func (i index) images() (out []archivedImage) {
	for _, m := range i.Manifests {
		name := m.Annotations[annotationName]
		if name == "" {
			name = m.Annotations[annotationRef]
			if name != "" && !strings.ContainsAny(name, "/:@") {
				name = unnamed + ":" + name
			}
		}
		if name != "" {
			out = append(out, archivedImage{name: fullName(name), digest: m.Digest})
		}
	}
	return out
}

// fullName returns the name by which containerd finds a Pod's image: with a registry, and with a tag or a digest.
func fullName(name string) string {
	first, rest, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost" && strings.ToLower(first) == first:
		name = "docker.io/" + name
	case first == "index.docker.io":
		name = fullName("docker.io/" + rest)
	case first == "docker.io" && !strings.Contains(rest, "/"):
		name = "docker.io/library/" + rest
	}
	if last := name[strings.LastIndexByte(name, '/')+1:]; !strings.ContainsAny(last, ":@") {
		name += ":latest"
	}
	return name
}
