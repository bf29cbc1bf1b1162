package serve

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// dial opens a connection to a port of the loopback, of whichever family somebody listens there.
func (i inside) dial(ctx context.Context, port int32) (net.Conn, error) {
	if i == "" {
		return dialLoopback(ctx, port)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() { // the network belongs to a thread, so the dialing has one for itself
		conn, err := i.enter(func() (net.Conn, error) { return dialLoopback(ctx, port) })
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// enter calls a function with the thread in the network namespace.
func (i inside) enter(do func() (net.Conn, error)) (net.Conn, error) {
	there, err := os.Open(string(i))
	if err != nil {
		return nil, fmt.Errorf("open the network of the pod: %w", err)
	}
	defer func() { _ = there.Close() }()
	runtime.LockOSThread() // ends with the goroutine when the way back fails, and the thread with it
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("find the network of the node: %w", err)
	}
	defer func() { _ = here.Close() }()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("enter the network of the pod: %w", err)
	}
	conn, err := do()
	if unix.Setns(int(here.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return conn, err
}

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
