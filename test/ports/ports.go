// Package ports gives tests TCP ports for programs that they start. A port that the kernel chose (":0") and that was closed again
// may be given to anybody before the program listens on it; the ports of this package stay with the process that asked for them.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// The ports are below the ephemeral ports of the kernel (32768 and up), and below the node ports of Services (30000 and up).
const first, count = 20000, 10000

// Reserve returns n free ports. No other process that uses this package gets them before this one has ended.
func Reserve(n int) ([]int, error) {
	out := make([]int, 0, n)
	start := rand.IntN(count)
	for i := 0; i < count && len(out) < n; i++ {
		port := first + (start+i)%count
		taken, err := reserve(port)
		if err != nil {
			return nil, fmt.Errorf("reserve port %d: %w", port, err)
		}
		if taken {
			out = append(out, port)
		}
	}
	if len(out) < n {
		return nil, fmt.Errorf("of the ports from %d to %d fewer than %d are free", first, first+count-1, n)
	}
	return out, nil
}

// reserve takes a port if it is free. The mark that others see is a Unix socket with a name of its own that needs no
// file; it is never closed, so that it lasts as long as the process.
func reserve(port int) (bool, error) {
	mark, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	err = syscall.Bind(mark, &syscall.SockaddrUnix{Name: fmt.Sprintf("@proa-test-port-%d", port)})
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, syscall.Close(mark)
	}
	if err != nil {
		return false, errors.Join(err, syscall.Close(mark))
	}
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return false, nil // somebody listens there; the mark saves others the attempt
	}
	return true, listener.Close()
}

// Strings is Reserve for tests that put ports into command lines. It ends the test if there are none.
func Strings(t testing.TB, n int) []string {
	t.Helper()
	numbers, err := Reserve(n)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, n)
	for i, port := range numbers {
		out[i] = strconv.Itoa(port)
	}
	return out
}

// Address returns a free address of this machine, and ends the test if there is none.
func Address(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", Strings(t, 1)[0])
}
