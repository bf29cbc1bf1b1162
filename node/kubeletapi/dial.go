package kubeletapi

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"proa.dev/node/netns"
)

// dial opens a connection to a port of the loopback interface, over IPv4 or IPv6.
func (i networkNamespace) dial(ctx context.Context, port int32) (conn net.Conn, err error) {
	if i == "" {
		return dialLoopback(ctx, port)
	}
	err = netns.Do(string(i), func() (err error) {
		conn, err = dialLoopback(ctx, port)
		return err
	})
	return conn, err
}

// dialLoopback tries one address family after the other: trying both at once would use other threads, in other network
// namespaces.
func dialLoopback(ctx context.Context, port int32) (net.Conn, error) {
	var d net.Dialer
	to := strconv.Itoa(int(port))
	conn, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", to))
	if err == nil {
		return conn, nil
	}
	conn, err6 := d.DialContext(ctx, "tcp6", net.JoinHostPort("::1", to))
	if err6 == nil {
		return conn, nil
	}
	return nil, fmt.Errorf("failed to connect to localhost:%d inside the network of the pod, IPv4: %w IPv6 %w", port, err, err6)
}
