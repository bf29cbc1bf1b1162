package runtime

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	typesOfTransfer = "containerd.types.transfer."
	// chunk is how much of an archive goes into one message.
	chunk = 32 << 10
)

// transfer sends an archive to containerd, which stores and unpacks its images. It returns the names of the stored
// images.
func transfer(ctx context.Context, conn *grpc.ClientConn, archive io.Reader) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := makeNamespace(ctx, conn); err != nil {
		return nil, err
	}
	source, sourceName, err := openStream(ctx, conn)
	if err != nil {
		return nil, err
	}
	progress, progressName, err := openStream(ctx, conn)
	if err != nil {
		return nil, err
	}
	var names []string
	var sent error
	var tasks sync.WaitGroup
	tasks.Go(func() { sent = sendArchive(source, archive) })
	tasks.Go(func() { names = savedNames(progress) })

	request := message{}.
		bytes(1, wrapAny(typesOfTransfer+"ImageImportStream", message{}.text(1, sourceName))).
		bytes(2, wrapAny(typesOfTransfer+"ImageStore", destination())).
		bytes(3, message{}.text(1, progressName))
	_, err = call(ctx, conn, "/containerd.services.transfer.v1.Transfer/Transfer", request)
	if err != nil {
		cancel() // nothing reads the archive any more
	}
	tasks.Wait()
	// If the archive cannot be read, that is the cause of containerd's error.
	if sent != nil && !errors.Is(sent, context.Canceled) {
		return nil, sent
	}
	return names, err
}

// makeNamespace creates the namespace if it does not exist. In a new containerd it does not, and the garbage collector
// would remove streams then.
func makeNamespace(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := call(ctx, conn, "/containerd.services.namespaces.v1.Namespaces/Create", message{}.bytes(1, message{}.text(1, namespace)))
	if errors.Is(err, errExists) {
		return nil
	}
	return err
}

// destination says how images are stored: under the names of the archive, for this platform, and unpacked.
func destination() message {
	platform := platform().message()
	reference := message{}.text(1, unnamed).number(2, 1).number(3, 1)
	return message{}.bytes(3, platform).bytes(6, reference).bytes(10, message{}.bytes(1, platform))
}

// openStream opens a stream of messages that a later call refers to by its name.
func openStream(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, string, error) {
	description := &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}
	stream, err := conn.NewStream(inNamespace(ctx), description, "/containerd.services.streaming.v1.Streaming/Stream")
	if err != nil {
		return nil, "", unwrapStatus(err)
	}
	name := "proa-" + rand.Text()
	if err := stream.SendMsg(wrapAny("containerd.services.streaming.v1.StreamInit", message{}.text(1, name))); err != nil {
		return nil, "", unwrapStatus(err)
	}
	var ready message
	if err := stream.RecvMsg(&ready); err != nil {
		return nil, "", unwrapStatus(err)
	}
	return stream, name, nil
}

// sendArchive sends the archive as the receiver's flow control allows.
func sendArchive(stream grpc.ClientStream, archive io.Reader) error {
	buffer := make([]byte, chunk)
	room := 0
	for {
		for room <= 0 {
			var update message
			if err := stream.RecvMsg(&update); err != nil {
				return ignoreEOF(err)
			}
			n, err := window(update)
			if err != nil {
				return err
			}
			room += n
		}
		n, err := archive.Read(buffer[:min(chunk, room)])
		room -= n
		if n > 0 {
			data := message{}.bytes(1, buffer[:n])
			if err := stream.SendMsg(wrapAny(typesOfTransfer+"Data", data)); err != nil {
				return ignoreEOF(err)
			}
		}
		if errors.Is(err, io.EOF) {
			return stream.CloseSend()
		}
		if err != nil {
			_ = stream.CloseSend()
			return fmt.Errorf("read the archive: %w", err)
		}
	}
}

// ignoreEOF drops the error of a stream that the other side has closed: the call that uses the stream returns the cause.
func ignoreEOF(err error) error {
	if err = unwrapStatus(err); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// window reads how many more bytes may be sent.
func window(update message) (n int, err error) {
	value, err := update.get(2)
	if err != nil {
		return 0, err
	}
	err = value.fields(func(field protowire.Number, _ []byte, v uint64) {
		if field == 1 {
			n = int(int32(v))
		}
	})
	return n, err
}

// savedNames reads the progress of a transfer until it ends, and returns the names of the stored images.
func savedNames(stream grpc.ClientStream) (out []string) {
	for {
		var update message
		if err := stream.RecvMsg(&update); err != nil {
			return out
		}
		value, err := update.get(2)
		if err != nil {
			continue
		}
		event, _ := value.get(1)
		name, _ := value.get(2)
		if string(event) == "saved" && len(name) > 0 && !slices.Contains(out, string(name)) {
			out = append(out, string(name))
		}
	}
}
