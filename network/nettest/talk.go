package nettest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// Listen answers on a port of the namespace with a name and the address of the client. Networks are "tcp" and "udp".
func (n *NS) Listen(network, addr, name string) {
	n.t.Helper()
	var err error
	n.Do(func() {
		if network == "udp" {
			var c net.PacketConn
			if c, err = net.ListenPacket(network, addr); err == nil {
				n.t.Cleanup(func() { c.Close() })
				go answerPackets(c, name)
			}
			return
		}
		var l net.Listener
		if l, err = net.Listen(network, addr); err == nil {
			n.t.Cleanup(func() { l.Close() })
			go answerStreams(l, name)
		}
	})
	if err != nil {
		n.t.Fatalf("%s listens on %s %s: %v", name, network, addr, err)
	}
}

func answerPackets(c net.PacketConn, name string) {
	buf := make([]byte, 2048)
	for {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo([]byte(reply(name, from)), from)
	}
}

func answerStreams(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			r := bufio.NewReader(c)
			for {
				if _, err := r.ReadString('\n'); err != nil {
					return
				}
				if _, err := c.Write([]byte(reply(name, c.RemoteAddr()))); err != nil {
					return
				}
			}
		}()
	}
}

func reply(name string, from net.Addr) string {
	host, _, _ := net.SplitHostPort(from.String())
	return name + " " + host + "\n"
}

// Dial connects from the namespace. A bridge port may drop the first packets, which are sent again after one second and after three.
func (n *NS) Dial(network, addr string) (c net.Conn, err error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Second)
	defer cancel()
	n.Do(func() { c, err = (&net.Dialer{}).DialContext(ctx, network, addr) })
	return c, err
}

// Ask asks who listens at an address. It returns "name client-address", or the error.
func (n *NS) Ask(network, addr string) string {
	c, err := n.Dial(network, addr)
	if err != nil {
		return "error: " + err.Error()
	}
	defer c.Close()
	return Question(c)
}

// Silent reports whether there is no answer at an address. An answer would come within microseconds, so it waits only a
// moment.
func (n *NS) Silent(network, addr string) bool {
	var c net.Conn
	var err error
	n.Do(func() {
		c, err = (&net.Dialer{Timeout: 300 * time.Millisecond}).DialContext(n.t.Context(), network, addr)
	})
	if err != nil {
		return timeout(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	_, err = c.Write([]byte("who\n"))
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	return timeout(err)
}

func timeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// Question asks over a connection. Packets may get lost, so it retries over UDP.
func Question(c net.Conn) string {
	_, isUDP := c.(*net.UDPConn)
	limit := 10 * time.Second
	if isUDP {
		limit = time.Second
	}
	var err error
	for range 5 {
		_ = c.SetDeadline(time.Now().Add(limit))
		if _, err = c.Write([]byte("who\n")); err != nil {
			continue
		}
		var line string
		if line, err = bufio.NewReader(c).ReadString('\n'); err == nil {
			return strings.TrimSpace(line)
		}
		if !isUDP {
			break
		}
	}
	return "error: " + err.Error()
}

// Same fails the test unless two texts are equal.
func Same(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// At joins an address and a port.
func At(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }
