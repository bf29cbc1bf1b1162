package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"proa.dev/internal/wait"
	"proa.dev/node/cri"
)

// Image is an image of containerd.
type Image struct {
	Name   string
	Digest string
	// Pinned images are never deleted by garbage collection.
	Pinned bool

	target descriptor // the manifest
}

// unnamed is the repository of images for which an archive has only a tag.
const unnamed = "localhost/loaded"

// ListImages returns the images sorted by name, without names that are only digests.
func ListImages(ctx context.Context, socket string) ([]Image, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return list(ctx, conn)
}

func list(ctx context.Context, conn *grpc.ClientConn) (out []Image, err error) {
	answer, err := call(ctx, conn, "/containerd.services.images.v1.Images/List", nil)
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	var wrong error
	err = answer.fields(func(field protowire.Number, data []byte, _ uint64) {
		i, err := readImage(data)
		wrong = errors.Join(wrong, err)
		if field == 1 && !strings.HasPrefix(i.Name, "sha256:") {
			out = append(out, i)
		}
	})
	slices.SortFunc(out, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	return out, errors.Join(err, wrong)
}

func readImage(m message) (i Image, err error) {
	var target message
	err = m.fields(func(field protowire.Number, data []byte, _ uint64) {
		switch field {
		case 1:
			i.Name = string(data)
		case 2:
			key, _ := message(data).get(1)
			value, _ := message(data).get(2)
			i.Pinned = i.Pinned || string(key) == "io.cri-containerd.pinned" && string(value) == "pinned"
		case 3:
			target = data
		}
	})
	if err != nil {
		return i, err
	}
	err = target.fields(func(field protowire.Number, data []byte, n uint64) {
		switch field {
		case 1:
			i.target.MediaType = string(data)
		case 2:
			i.target.Digest = string(data)
		case 3:
			i.target.Size = int64(n)
		}
	})
	i.Digest = i.target.Digest
	return i, err
}

// ImportImages imports the images of an archive into containerd, unpacked and ready to run, and returns their names. It
// supports OCI and docker archives with one or several images, compressed or not. If the archive is seekable and all
// its images are present already, nothing is sent. Imported images are never deleted by garbage collection.
func ImportImages(ctx context.Context, socket string, archive io.Reader) ([]string, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client, err := cri.Dial(socket)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	names, err := presentImages(ctx, conn, client, archive)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		if names, err = transfer(ctx, conn, archive); err != nil {
			return nil, fmt.Errorf("import the archive: %w", err)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("no image of the archive has a name; make it with one, as with \"docker save NAME:TAG\"")
	}
	for i, name := range names {
		if names[i], err = giveFullName(ctx, conn, name); err != nil {
			return nil, err
		}
		if err := pin(ctx, conn, names[i]); err != nil {
			return nil, err
		}
	}
	return names, waitUntilKnown(ctx, client, names)
}

// presentImages returns the names of an archive's images if all of them are present already.
func presentImages(ctx context.Context, conn *grpc.ClientConn, client *cri.Client, archive io.Reader) ([]string, error) {
	file, ok := archive.(io.ReadSeeker)
	if !ok {
		return nil, nil
	}
	start, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, nil //nolint:nilerr // a pipe cannot be read twice
	}
	all, err := imagesIn(file)
	if _, back := file.Seek(start, io.SeekStart); back != nil {
		return nil, fmt.Errorf("read the archive again: %w", back)
	}
	if err != nil || len(all) == 0 {
		return nil, nil //nolint:nilerr // containerd reports the error of a damaged archive
	}
	have, err := list(ctx, conn)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, w := range all {
		at := slices.IndexFunc(have, func(h Image) bool { return h.Name == w.name })
		if at < 0 || w.digest != "" && w.digest != have[at].Digest || w.id != "" && w.id != imageID(ctx, client, w.name) {
			return nil, nil
		}
		names = append(names, w.name)
	}
	return names, nil
}

// imageID returns the id of an image, empty if the CRI does not know it.
func imageID(ctx context.Context, client *cri.Client, name string) string {
	answer, err := client.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil || answer.Image == nil {
		return ""
	}
	return answer.Image.Id
}

// giveFullName gives an image its full name if the archive had a short one: a Pod with the image busybox needs
// docker.io/library/busybox:latest.
func giveFullName(ctx context.Context, conn *grpc.ClientConn, name string) (string, error) {
	full := fullName(name)
	if full == name {
		return name, nil
	}
	target, err := targetOf(ctx, conn, name)
	if err != nil {
		return "", fmt.Errorf("rename image %s: %w", name, err)
	}
	_, _ = call(ctx, conn, "/containerd.services.images.v1.Images/Delete", message{}.text(1, full)) // the image that had the name before
	request := message{}.bytes(1, message{}.text(1, full).bytes(3, target))
	if _, err := call(ctx, conn, "/containerd.services.images.v1.Images/Create", request); err != nil {
		return "", fmt.Errorf("rename image %s to %s: %w", name, full, err)
	}
	_, err = call(ctx, conn, "/containerd.services.images.v1.Images/Delete", message{}.text(1, name))
	return full, err
}

// pin protects an image from garbage collection: an imported image may be in no registry. containerd requires the whole
// image in the update, although only a label changes.
func pin(ctx context.Context, conn *grpc.ClientConn, name string) error {
	target, err := targetOf(ctx, conn, name)
	if err != nil {
		return fmt.Errorf("keep image %s: %w", name, err)
	}
	label := message{}.text(1, "io.cri-containerd.pinned").text(2, "pinned")
	request := message{}.bytes(1, message{}.text(1, name).bytes(2, label).bytes(3, target)).bytes(2,
		message{}.text(1, "labels.io.cri-containerd.pinned"))
	if _, err := call(ctx, conn, "/containerd.services.images.v1.Images/Update", request); err != nil {
		return fmt.Errorf("keep image %s: %w", name, err)
	}
	return nil
}

// targetOf returns the manifest descriptor of an image.
func targetOf(ctx context.Context, conn *grpc.ClientConn, name string) (message, error) {
	answer, err := call(ctx, conn, "/containerd.services.images.v1.Images/Get", message{}.text(1, name))
	if err != nil {
		return nil, err
	}
	image, err := answer.get(1)
	if err != nil {
		return nil, err
	}
	return image.get(3)
}

// waitUntilKnown waits until the CRI plugin knows the images: it learns of them after containerd has stored them.
func waitUntilKnown(ctx context.Context, client *cri.Client, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, name := range names {
		for imageID(ctx, client, name) == "" {
			if err := wait.Sleep(ctx, 2*time.Millisecond); err != nil {
				return fmt.Errorf("image %s was imported, but the runtime does not show it: %w", name, err)
			}
		}
	}
	return nil
}

// platformSpec is a platform.
type platformSpec struct{ os, arch, variant string }

func platform() platformSpec {
	s := platformSpec{os: "linux", arch: runtime.GOARCH}
	if s.arch == "arm" {
		s.variant = "v7"
	}
	return s
}

func (s platformSpec) text() string { return strings.TrimSuffix(s.os+"/"+s.arch+"/"+s.variant, "/") }

func (s platformSpec) message() message {
	return message{}.text(1, s.os).text(2, s.arch).text(3, s.variant)
}
