// Package cri is the one door to a container runtime: the CRI as Go values, over a socket. Whoever builds a sandbox or a
// container uses the names of this package; the library behind them is imported nowhere else.
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

// maxMessage bounds what the runtime may say at once: a node with many containers and images has long lists.
const maxMessage = 16 << 20

// Client talks to a runtime. It reconnects by itself; while the runtime is away its calls fail.
type Client struct {
	conn *grpc.ClientConn
	runtimev1.RuntimeServiceClient
	Images runtimev1.ImageServiceClient
}

// Dial makes a client for a socket: a path, or a unix:// URL. It does not wait for the runtime; Version does.
func Dial(socket string) (*Client, error) {
	if socket == "" {
		return nil, errors.New("no runtime socket is given")
	}
	again := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second}
	if socket[0] == '/' {
		socket = "unix://" + socket
	}
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("open the runtime at %s: %w", socket, err)
	}
	return &Client{conn: conn, RuntimeServiceClient: runtimev1.NewRuntimeServiceClient(conn), Images: runtimev1.NewImageServiceClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// NotFound says that the runtime does not know what was asked about.
func NotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Unavailable says that the runtime could not be asked.
func Unavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// TimedOut says that what was asked for took longer than it may.
func TimedOut(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

// Message is what the runtime says went wrong, without the words of the protocol around it.
func Message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
