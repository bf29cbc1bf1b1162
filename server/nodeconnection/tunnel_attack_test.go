package nodeconnection

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/streamoptions"
)

// TestAnotherAgentDoesNotReplaceTheTunnel checks that a client with another certificate for the same node does not replace
// the tunnel of an agent, and that this is logged. The agent itself does replace it, with its renewed certificate.
func TestAnotherAgentDoesNotReplaceTheTunnel(t *testing.T) {
	f := newTunnelServer(t)
	var log lockedBuffer
	f.Log = slog.New(slog.NewTextHandler(&log, nil))
	open := func(c *tls.Certificate, from string) string {
		conn, err := tls.Dial("tcp", f.Listener.Addr().String(), f.tlsConfigOf(c))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: server\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n%s: 127.0.0.1\r\n\r\n", streamoptions.TunnelPath, streamoptions.TunnelProtocol, streamoptions.TunnelFrom, from, streamoptions.TunnelAt)
		var head [13]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatal(err)
		}
		return string(head[9:12])
	}
	first, renewed, others := f.certOf("n"), f.ca.named("system:node:n", "system:nodes"), f.ca.named("system:node:n", "system:nodes")
	if got := open(first, "p"); got != "101" {
		t.Fatalf("the agent: %s", got)
	}
	have := f.waitForTunnel(t, "n", nil)
	if got := open(others, "q"); got != "409" || f.tunnel("n") != have || have.conn.Err() != nil {
		t.Errorf("another client with a certificate for the same node: %s", got)
	}
	if !strings.Contains(log.String(), "somebody else has the certificate of a node") {
		t.Errorf("it is not logged: %s", log.String())
	}
	if got := open(renewed, "p"); got != "101" {
		t.Errorf("the agent with its renewed certificate: %s", got)
	}
	again := f.waitForTunnel(t, "n", have)
	if got := open(renewed, "r"); got != "101" {
		t.Errorf("the next process of the agent: %s", got)
	}
	f.waitForTunnel(t, "n", again)
}

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write appends.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestClaimedAddressesOfTunnelsAreChecked checks that of the addresses that an agent claims only those count that its Node
// has, or from which it connects, and never loopback, link-local or Service addresses.
func TestClaimedAddressesOfTunnelsAreChecked(t *testing.T) {
	claim := []string{"192.0.2.7", "192.0.2.8", "127.0.0.1", "169.254.1.1", "10.96.0.1", "fe80::1", "224.0.0.1", "2001:db8::7",
		"198.51.100.1"}
	a := New(Config{
		Log: slog.New(slog.DiscardHandler), ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
		Node: func(_ context.Context, name string) (*corev1.Node, error) {
			if name != "n" {
				return nil, errors.New("no such node")
			}
			n := &corev1.Node{}
			for _, ip := range []string{"192.0.2.7", "127.0.0.1", "169.254.1.1", "10.96.0.1", "fe80::1", "224.0.0.1", "2001:db8::7",
				"name"} {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
			}
			return n, nil
		},
	})
	var claimed []netip.Addr
	for _, text := range claim {
		claimed = append(claimed, netip.MustParseAddr(text))
	}
	for _, test := range []struct{ node, seen, want string }{
		{"n", "192.0.2.7", "[192.0.2.7 2001:db8::7]"},
		{"n", "198.51.100.1", "[192.0.2.7 2001:db8::7 198.51.100.1]"},
		{"n", "203.0.113.1", "[192.0.2.7 2001:db8::7]"},
		{"m", "192.0.2.8", "[192.0.2.8]"},
	} {
		if got := fmt.Sprint(a.verifiedAddresses(t.Context(), test.node, claimed, netip.MustParseAddr(test.seen))); got != test.want {
			t.Errorf("node %s from %s: %s, want %s", test.node, test.seen, got, test.want)
		}
	}
}
