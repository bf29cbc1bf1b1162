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

	"proa.dev/node/cri"
)

// Image is an image that containerd has.
type Image struct {
	Name   string
	Digest string
	// Pinned images are never removed to make room.
	Pinned bool

	target descriptor // what it consists of
}

// unnamed is what images are called of which an archive tells only the tag.
const unnamed = "localhost/loaded"

// List lists the images by name, without the names that are only digests.
func List(ctx context.Context, socket string) ([]Image, error) {
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

// Import brings the images of an archive into containerd, unpacked and ready to run, and returns their names. It takes OCI
// and docker archives with one image or several, compressed or not. Of an archive that can be sought in, nothing is sent if
// all of its images are there already. Images that came this way are never removed to make room.
func Import(ctx context.Context, socket string, archive io.Reader) ([]string, error) {
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
	names, err := present(ctx, conn, client, archive)
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
		if names[i], err = rename(ctx, conn, name); err != nil {
			return nil, err
		}
		if err := pin(ctx, conn, names[i]); err != nil {
			return nil, err
		}
	}
	return names, known(ctx, client, names)
}

// present returns the names of an archive's images if every one is there already.
func present(ctx context.Context, conn *grpc.ClientConn, client *cri.Client, archive io.Reader) ([]string, error) {
	file, ok := archive.(io.ReadSeeker)
	if !ok {
		return nil, nil
	}
	start, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, nil //nolint:nilerr // a pipe: it is read from the front
	}
	all, err := contents(file)
	if _, back := file.Seek(start, io.SeekStart); back != nil {
		return nil, fmt.Errorf("read the archive again: %w", back)
	}
	if err != nil || len(all) == 0 {
		return nil, nil //nolint:nilerr // containerd says what is wrong with it
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

// imageID is the id of an image, empty if the CRI does not know it.
func imageID(ctx context.Context, client *cri.Client, name string) string {
	answer, err := client.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil || answer.Image == nil {
		return ""
	}
	return answer.Image.Id
}

// rename gives an image its full name if the archive had a short one, such as busybox: Pods that ask for it ask for
// docker.io/library/busybox:latest.
func rename(ctx context.Context, conn *grpc.ClientConn, name string) (string, error) {
	full := fullName(name)
	if full == name {
		return name, nil
	}
	target, err := targetOf(ctx, conn, name)
	if err != nil {
		return "", fmt.Errorf("rename image %s: %w", name, err)
	}
	_, _ = call(ctx, conn, "/containerd.services.images.v1.Images/Delete", message{}.text(1, full)) // what had the name before
	request := message{}.bytes(1, message{}.text(1, full).bytes(3, target))
	if _, err := call(ctx, conn, "/containerd.services.images.v1.Images/Create", request); err != nil {
		return "", fmt.Errorf("rename image %s to %s: %w", name, full, err)
	}
	_, err = call(ctx, conn, "/containerd.services.images.v1.Images/Delete", message{}.text(1, name))
	return full, err
}

// pin keeps an image from being removed to make room: what came as an archive may be in no registry. containerd wants to be
// told the whole image, though only a label of it changes.
func pin(ctx context.Context, conn *grpc.ClientConn, name string) error {
	target, err := targetOf(ctx, conn, name)
	if err != nil {
		return fmt.Errorf("keep image %s: %w", name, err)
	}
	label := message{}.text(1, "io.cri-containerd.pinned").text(2, "pinned")
	request := message{}.bytes(1, message{}.text(1, name).bytes(2, label).bytes(3, target)).bytes(2, message{}.text(1, "labels.io.cri-containerd.pinned"))
	if _, err := call(ctx, conn, "/containerd.services.images.v1.Images/Update", request); err != nil {
		return fmt.Errorf("keep image %s: %w", name, err)
	}
	return nil
}

// targetOf is what an image consists of.
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

// known waits until the CRI knows the images: it hears of them after containerd has them.
func known(ctx context.Context, client *cri.Client, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, name := range names {
		for imageID(ctx, client, name) == "" {
			select {
			case <-ctx.Done():
				return fmt.Errorf("image %s was imported, but the runtime does not show it: %w", name, ctx.Err())
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
	return nil
}

// spec is what a machine runs.
type spec struct{ os, arch, variant string }

func platform() spec {
	s := spec{os: "linux", arch: runtime.GOARCH}
	if s.arch == "arm" {
		s.variant = "v7"
	}
	return s
}

func (s spec) text() string { return strings.TrimSuffix(s.os+"/"+s.arch+"/"+s.variant, "/") }

func (s spec) message() message { return message{}.text(1, s.os).text(2, s.arch).text(3, s.variant) }
