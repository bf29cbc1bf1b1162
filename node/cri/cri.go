// Package cri is the client of the container runtime: the CRI over a socket. Packages that configure sandboxes and
// containers use the names of this package; the library behind them is imported nowhere else.
package cri

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MaxMessage limits the size of a message: a node with many containers and images has long lists. containerd is told to send as much.
const MaxMessage = 64 << 20

// Client calls a runtime. It reconnects by itself; while the runtime is away its calls fail.
type Client struct {
	conn *grpc.ClientConn
	runtimev1.RuntimeServiceClient
	Images runtimev1.ImageServiceClient
}

// Dial makes a client for a socket: a path, or a unix:// URL. It does not wait for the runtime; Version does. The observers are
// told of every call.
func Dial(socket string, observers ...Observer) (*Client, error) {
	if socket == "" {
		return nil, errors.New("no runtime socket is given")
	}
	again := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second}
	if socket[0] == '/' {
		socket = "unix://" + socket
	}
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second}),
		grpc.WithChainUnaryInterceptor(unaryInterceptors(observers)...))
	if err != nil {
		return nil, fmt.Errorf("open the runtime at %s: %w", socket, err)
	}
	return &Client{conn: conn, RuntimeServiceClient: runtimev1.NewRuntimeServiceClient(conn),
		Images: runtimev1.NewImageServiceClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// NotFound reports whether the runtime does not know the object.
func NotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Unavailable reports whether the runtime could not be reached.
func Unavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// TimedOut reports whether a call exceeded its timeout.
func TimedOut(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

// TooLarge reports whether what is asked for does not fit into a message.
func TooLarge(err error) bool { return status.Code(err) == codes.ResourceExhausted }

// Message returns the message of the runtime's error, without the prefix of gRPC.
func Message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
