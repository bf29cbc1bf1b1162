package runtime

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// containerd has an API of its own beside the CRI. The few messages of it that are needed here are encoded and decoded
// field by field: the library with all of them would add six modules and a second logger.

// message is an encoded protobuf message.
type message []byte

func (m message) text(field protowire.Number, s string) message {
	if s == "" {
		return m
	}
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), s)
}

func (m message) bytes(field protowire.Number, b []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), b)
}

func (m message) number(field protowire.Number, n uint64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), n)
}

// wrapAny wraps a message together with its type, as google.protobuf.Any.
func wrapAny(kind string, m message) message { return message{}.text(1, kind).bytes(2, m) }

// fields calls yield for each field: with its bytes, or its number.
func (m message) fields(yield func(field protowire.Number, data []byte, n uint64)) error {
	rest := []byte(m)
	for len(rest) > 0 {
		field, kind, used := protowire.ConsumeTag(rest)
		if used < 0 {
			return protowire.ParseError(used)
		}
		rest = rest[used:]
		var data []byte
		var n uint64
		switch kind {
		case protowire.BytesType:
			data, used = protowire.ConsumeBytes(rest)
		case protowire.VarintType:
			n, used = protowire.ConsumeVarint(rest)
		default:
			used = protowire.ConsumeFieldValue(field, kind, rest)
		}
		if used < 0 {
			return protowire.ParseError(used)
		}
		rest = rest[used:]
		yield(field, data, n)
	}
	return nil
}

// get returns the last value of a field of bytes.
func (m message) get(field protowire.Number) (out message, err error) {
	err = m.fields(func(f protowire.Number, data []byte, _ uint64) {
		if f == field {
			out = data
		}
	})
	return out, err
}

// codec passes messages on unchanged.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(message)
	if !ok {
		return nil, fmt.Errorf("not a message: %T", v)
	}
	return m, nil
}

func (codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("not a message: %T", v)
	}
	*m = append((*m)[:0:0], data...)
	return nil
}

// namespace is the containerd namespace of the CRI's containers and images.
const namespace = "k8s.io"

// dial connects to containerd's own API.
func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("open the runtime at %s: %w", socket, err)
	}
	return conn, nil
}

const maxMessage = 16 << 20

func inNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// call makes one request.
func call(ctx context.Context, conn *grpc.ClientConn, method string, request message) (answer message, err error) {
	if request == nil {
		request = message{}
	}
	err = conn.Invoke(inNamespace(ctx), method, request, &answer)
	return answer, unwrapStatus(err)
}

var errExists = errors.New("already exists")

// unwrapStatus returns an error with containerd's message, without the prefix of gRPC.
func unwrapStatus(err error) error {
	s, ok := status.FromError(err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return err
	case s.Code() == codes.AlreadyExists:
		return fmt.Errorf("%w: %s", errExists, s.Message())
	case s.Code() == codes.Canceled:
		return context.Canceled
	case s.Code() == codes.DeadlineExceeded:
		return context.DeadlineExceeded
	}
	return errors.New(s.Message())
}
