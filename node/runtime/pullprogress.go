package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// sourceLabel is the beginning of the label that names the repository of a blob, before the host of the registry.
	sourceLabel = "containerd.io/distribution.source."
	// layerLabel is the beginning of the labels with which a manifest refers to its layers.
	layerLabel = "containerd.io/gc.ref.content.l."
	// maxManifest is how large a manifest is at most, in bytes.
	maxManifest = 4 << 20
)

// PullProgress returns how much of the image that is being pulled from a repository since a moment has been downloaded, and how large
// its layers are together, in bytes. total is 0 while that is not known: before the manifest is here, while no layer is being downloaded,
// and while several images of the repository are. The CRI does not tell the progress, but containerd has the parts of blobs that are being
// downloaded, and the manifests that name them.
func PullProgress(ctx context.Context, socket, repository string, since time.Time) (done, total int64, err error) {
	conn, err := dial(socket)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	ingests, err := listIngests(ctx, conn)
	if err != nil || len(ingests) == 0 {
		return 0, 0, err
	}
	host, path, _ := strings.Cut(repository, "/")
	host, _, _ = strings.Cut(host, ":") // the label has no port
	blobs, err := listBlobs(ctx, conn, fmt.Sprintf("labels.%q==%q", sourceLabel+host, path))
	if err != nil {
		return 0, 0, err
	}
	manifest, known := manifestOf(blobs, ingests, since)
	if !known {
		return 0, 0, nil
	}
	layers, err := layersOf(ctx, conn, manifest)
	if err != nil || len(layers) == 0 {
		return 0, 0, err
	}
	var filters []string
	for _, l := range layers {
		filters = append(filters, "digest=="+l.Digest)
	}
	present, err := listBlobs(ctx, conn, filters...)
	if err != nil {
		return 0, 0, err
	}
	done, total = sumLayers(layers, ingests, present)
	return done, total, nil
}

// PullProgress returns the progress of a pull by this runtime.
func (r *Runtime) PullProgress(ctx context.Context, repository string, since time.Time) (done, total int64, err error) {
	return PullProgress(ctx, r.Socket(), repository, since)
}

// ingest is a blob that is being downloaded, or was when its download was interrupted.
type ingest struct {
	digest  string
	offset  int64 // how many bytes are here
	updated time.Time
}

// blob is a part of an image that is complete.
type blob struct {
	digest string
	layers []string // the digests of its layers; none if it is no manifest
}

// manifestOf returns the only manifest with a layer that was being downloaded since a moment.
func manifestOf(blobs []blob, ingests []ingest, since time.Time) (digest string, known bool) {
	for _, b := range blobs {
		if !slices.ContainsFunc(ingests, func(i ingest) bool { return !i.updated.Before(since) && slices.Contains(b.layers, i.digest) }) {
			continue
		}
		if known {
			return "", false
		}
		digest, known = b.digest, true
	}
	return digest, known
}

// sumLayers returns how many bytes of an image's layers are here, and how many there are. The first layers may already be unpacked from
// another image; they are not downloaded and do not count, unless they are here.
func sumLayers(layers []descriptor, ingests []ingest, present []blob) (done, total int64) {
	counted := map[string]bool{}
	for _, l := range layers {
		here, isKnown := int64(0), false
		if i := slices.IndexFunc(ingests, func(i ingest) bool { return i.digest == l.Digest }); i >= 0 {
			here, isKnown = min(ingests[i].offset, l.Size), true
		}
		if slices.ContainsFunc(present, func(b blob) bool { return b.digest == l.Digest }) {
			here, isKnown = l.Size, true
		}
		if counted[l.Digest] || !isKnown && total == 0 {
			continue
		}
		counted[l.Digest] = true
		done, total = done+here, total+l.Size
	}
	return done, total
}

// listIngests returns all blobs that are being downloaded.
func listIngests(ctx context.Context, conn *grpc.ClientConn) (out []ingest, err error) {
	answer, err := call(ctx, conn, "/containerd.services.content.v1.Content/ListStatuses", nil)
	if err != nil {
		return nil, fmt.Errorf("list the blobs that are being downloaded: %w", err)
	}
	var wrong error
	err = answer.fields(func(field protowire.Number, data []byte, _ uint64) {
		if field == 1 {
			i, err := readIngest(data)
			wrong = errors.Join(wrong, err)
			out = append(out, i)
		}
	})
	return out, errors.Join(err, wrong)
}

func readIngest(m message) (i ingest, err error) {
	var updated message
	err = m.fields(func(field protowire.Number, data []byte, n uint64) {
		switch field {
		case 2:
			updated = data
		case 3: // such as layer-sha256:…
			ref := string(data)
			i.digest = ref[max(strings.LastIndex(ref, "sha256:"), 0):]
		case 4:
			i.offset = int64(n)
		}
	})
	if err != nil {
		return i, err
	}
	var seconds, nanoseconds int64
	err = updated.fields(func(field protowire.Number, _ []byte, n uint64) {
		switch field {
		case 1:
			seconds = int64(n)
		case 2:
			nanoseconds = int64(n)
		}
	})
	i.updated = time.Unix(seconds, nanoseconds)
	return i, err
}

// listBlobs returns the blobs that one of the filters matches.
func listBlobs(ctx context.Context, conn *grpc.ClientConn, filters ...string) (out []blob, err error) {
	request := message{}
	for _, f := range filters {
		request = request.text(1, f)
	}
	var wrong error
	err = stream(ctx, conn, "/containerd.services.content.v1.Content/List", request, func(answer message) error {
		return answer.fields(func(field protowire.Number, data []byte, _ uint64) {
			if field == 1 {
				b, err := readBlob(data)
				wrong = errors.Join(wrong, err)
				out = append(out, b)
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list the blobs: %w", err)
	}
	return out, wrong
}

func readBlob(m message) (b blob, err error) {
	err = m.fields(func(field protowire.Number, data []byte, _ uint64) {
		switch field {
		case 1:
			b.digest = string(data)
		case 5:
			key, _ := message(data).get(1)
			value, _ := message(data).get(2)
			if strings.HasPrefix(string(key), layerLabel) {
				b.layers = append(b.layers, string(value))
			}
		}
	})
	return b, err
}

// layersOf reads the layers of a manifest.
func layersOf(ctx context.Context, conn *grpc.ClientConn, digest string) ([]descriptor, error) {
	var data []byte
	err := stream(ctx, conn, "/containerd.services.content.v1.Content/Read", message{}.text(1, digest), func(answer message) error {
		part, err := answer.get(2)
		if data = append(data, part...); len(data) > maxManifest {
			return errors.New("it is too large")
		}
		return err
	})
	var manifest struct {
		Layers []descriptor `json:"layers"`
	}
	if err == nil {
		err = json.Unmarshal(data, &manifest)
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest %s: %w", digest, err)
	}
	return manifest.Layers, nil
}

// stream makes a request with many answers.
func stream(ctx context.Context, conn *grpc.ClientConn, method string, request message, each func(answer message) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := conn.NewStream(inNamespace(ctx), &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return unwrapStatus(err)
	}
	if err := errors.Join(s.SendMsg(request), s.CloseSend()); err != nil {
		return unwrapStatus(err)
	}
	for {
		var answer message
		if err := s.RecvMsg(&answer); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return unwrapStatus(err)
		}
		if err := each(answer); err != nil {
			return err
		}
	}
}
