package runtime

import (
	"archive/tar"
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
	// mostIndex bounds what is read of the index of an archive.
	mostIndex = 4 << 20
)

// descriptor points at a blob of an archive.
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

// contents reads which images are in an archive, without reading the images. Only OCI archives say it; of others, and of
// compressed ones, nothing is returned.
func contents(archive io.Reader) ([]Image, error) {
	files := tar.NewReader(archive)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if path.Clean(h.Name) != "index.json" || h.Typeflag != tar.TypeReg {
			continue
		}
		if h.Size > mostIndex {
			return nil, fmt.Errorf("the index of the archive has %d bytes, more than %d", h.Size, mostIndex)
		}
		var i index
		if err := json.NewDecoder(io.LimitReader(files, mostIndex)).Decode(&i); err != nil {
			return nil, fmt.Errorf("read the index of the archive: %w", err)
		}
		return i.images(), nil
	}
}

func (i index) images() (out []Image) {
	for _, m := range i.Manifests {
		name := m.Annotations[annotationName]
		if name == "" {
			name = m.Annotations[annotationRef]
			if name != "" && !strings.ContainsAny(name, "/:@") {
				name = unnamed + ":" + name
			}
		}
		if name != "" {
			out = append(out, Image{Name: fullName(name), Digest: m.Digest})
		}
	}
	return out
}

// fullName is the name under which a Pod's image is looked for: with a registry, and with a tag or a digest.
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
