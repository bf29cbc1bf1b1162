package connlimit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fakeConn is a connection of a client at an address.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}
func (c *fakeConn) Close() error { c.closed = true; return nil }

// open makes n connections of an address, which are open for longer the earlier they are made.
func open(b *Budget, class Class, from string, n int) (out []*Conn) {
	for range n {
		out = append(out, b.admit(&fakeConn{from: from + ":1"}, "test", class).(*Conn))
		time.Sleep(time.Second)
	}
	return out
}

// closedOf returns which of the connections were closed.
func closedOf(all []*Conn) (out []int) {
	for i, c := range all {
		if c.Conn.(*fakeConn).closed {
			out = append(out, i)
		}
	}
	return out
}

func check(t *testing.T, name string, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: closed are %v, want %v", name, got, want)
	}
}

// budget returns a budget of 32 connections: 8 unauthenticated, 10 of users, 4 of administrators, 8 public and 2 local ones.
func budget() *Budget { return New(32, slog.New(slog.DiscardHandler)) }

// TestClientThatHoldsMostLoses checks that a class that is full takes a new connection, and closes the oldest one of the
// address that has most, never one of a client that has few.
func TestClientThatHoldsMostLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget()
		few, many := open(b, Unauthenticated, "10.0.0.1", 2), open(b, Unauthenticated, "10.0.0.2", 6)
		many = append(many, open(b, Unauthenticated, "10.0.0.2", 3)...)
		check(t, "the client that holds most", closedOf(many), 0, 1, 2)
		other := open(b, Unauthenticated, "10.0.0.3", 1)
		check(t, "for another client", closedOf(many), 0, 1, 2, 3)
		check(t, "clients with few", append(closedOf(few), closedOf(other)...))
		for _, c := range many {
			_ = c.Close()
		}
		if b.open[Unauthenticated] != 3 || len(b.owners[Unauthenticated]) != 2 {
			t.Errorf("%d connections of %d owners are counted", b.open[Unauthenticated], len(b.owners[Unauthenticated]))
		}
	})
}

// TestAddressesOfANetwork checks that an IPv6 client does not become many by having many addresses.
func TestAddressesOfANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget()
		good := open(b, Unauthenticated, "[2001:db8:1::1]", 1)
		var bad []*Conn
		for i := range 20 {
			bad = append(bad, open(b, Unauthenticated, fmt.Sprintf("[2001:db8:2::%x]", i), 1)...)
		}
		check(t, "the client with one address", closedOf(good))
		if n := len(closedOf(bad)); n != 13 {
			t.Errorf("%d of the other's connections were closed, want 13", n)
		}
	})
}

// TestNewClientOfASharedAddress checks that of one address the newest client goes last, whatever the others do: it is
// about to authenticate.
func TestNewClientOfASharedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget()
		busy := open(b, Unauthenticated, "127.0.0.1", 8)
		for _, c := range busy {
			c.SetIdle(time.Time{})
		}
		user := open(b, Unauthenticated, "127.0.0.1", 1)
		open(b, Unauthenticated, "127.0.0.1", 5)
		check(t, "the user", closedOf(user))
		user[0].Authenticate("alice", nil)
		open(b, Unauthenticated, "127.0.0.1", 20)
		check(t, "the user who has authenticated", closedOf(user))
	})
}

// TestUsersShareTheirClass checks that connections that authenticate leave the share of the others, that the user who
// holds most loses idle ones first, that the service accounts of a namespace are one user, and that nobody but
// administrators takes the share of administrators.
func TestUsersShareTheirClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget()
		as := func(n int, name string, groups ...string) []*Conn {
			var out []*Conn
			for range n {
				c := open(b, Unauthenticated, "10.0.0.1", 1)[0]
				c.Authenticate(name, groups)
				out = append(out, c)
			}
			return out
		}
		admin, alice := as(1, "root", "system:masters"), as(2, "alice")
		tenant := slices.Concat(as(4, "system:serviceaccount:ns:a"), as(4, "system:serviceaccount:ns:b"))
		for _, c := range tenant {
			c.SetIdle(time.Time{}) // busy
		}
		tenant[5].SetIdle(time.Now())
		bob := as(1, "bob")
		check(t, "an idle connection of the namespace", closedOf(tenant), 5)
		bob = append(bob, as(1, "bob")...)
		check(t, "then its oldest", closedOf(tenant), 0, 5)
		tenant = append(tenant, as(20, "system:serviceaccount:ns:c")...)
		if n := len(closedOf(tenant)); n != 22 {
			t.Errorf("%d of the tenant's connections were closed, want 22", n)
		}
		check(t, "others", slices.Concat(closedOf(admin), closedOf(alice), closedOf(bob)))
		if b.open[Unauthenticated] != 0 || b.open[Administrator] != 1 || b.open[Authenticated] != 10 {
			t.Errorf("counted are %v", b.open)
		}
		bob[0].Authenticate("system:anonymous", []string{"system:masters"})
		if bob[0].Authenticate("bob", []string{"system:masters"}); b.open[Administrator] != 2 || b.open[Authenticated] != 9 {
			t.Errorf("after a request of an administrator on the same connection: %v", b.open)
		}
		if bob[0].Authenticate("alice", nil); b.open[Administrator] != 2 {
			t.Errorf("after another request: %v", b.open)
		}
	})
}

// TestNoBudget checks that everything works without one.
func TestNoBudget(t *testing.T) {
	var b *Budget
	c := &fakeConn{}
	if b.admit(c, "test", Public) != net.Conn(c) {
		t.Error("the connection was wrapped")
	}
	Of(c).Authenticate("alice", nil)
	Of(c).SetIdle(time.Now())
	if end, ok := b.Stream("alice", nil); !ok {
		t.Error("the stream was refused")
	} else {
		end()
	}
}

// TestStreams checks that a user gets half of the streams, users together three quarters, and administrators the rest.
func TestStreams(t *testing.T) {
	b := budget() // 8 streams
	var ends []func()
	take := func(n int, name string, groups ...string) (got int) {
		for range n {
			if end, ok := b.Stream(name, groups); ok {
				ends = append(ends, end)
				got++
			}
		}
		return got
	}
	if a, b, c, d := take(9, "system:serviceaccount:ns:a"), take(9, "system:serviceaccount:ns:b"), take(9, "bob"),
		take(9, "root", "system:masters"); a != 4 || b != 0 || c != 2 || d != 2 {
		t.Errorf("given are %d, %d, %d and %d", a, b, c, d)
	}
	for _, end := range ends {
		end()
		end() // twice is once
	}
	if b.streams.open != 0 || len(b.streams.owned) != 0 {
		t.Errorf("left are %+v", &b.streams)
	}
}

// failingListener fails with each of its errors in turn, and then accepts.
type failingListener struct {
	net.Listener
	errs []error
}

func (l *failingListener) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return &fakeConn{from: "10.0.0.9:1"}, nil
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
}
func (l *failingListener) Close() error { return nil }

// TestListenerSurvives checks that a listener without descriptors tries again, says so once, and closes connections of
// unknown clients meanwhile; and that it ends when it is closed, or by an error that will not pass.
func TestListenerSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := New(32, slog.New(slog.NewTextHandler(&log, nil)))
		held := open(b, Unauthenticated, "10.0.0.1", 3)
		l := b.Listener(&failingListener{errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED}}, "api", Unauthenticated)
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		check(t, "to make room", closedOf(held), 0, 1)
		_ = c.Close()
		if text := log.String(); strings.Count(text, "level=ERROR") != 1 || strings.Count(text, "accepted again") != 1 {
			t.Errorf("logged was %s", text)
		}
		l = b.Listener(&failingListener{errs: slices.Repeat([]error{syscall.EMFILE}, 1000)}, "api", Unauthenticated)
		time.AfterFunc(time.Minute, func() { _ = l.Close() })
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		l = (*Budget)(nil).Listener(&failingListener{errs: []error{syscall.EMFILE, syscall.EBADF}}, "api", Public)
		if _, err := l.Accept(); !errors.Is(err, syscall.EBADF) {
			t.Errorf("an error that stays: %v", err)
		}
	})
}

// TestRealSockets checks that a connection through a listener with a budget still has what a socket has.
func TestRealSockets(t *testing.T) {
	b := budget()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := b.Listener(inner, "test", Public)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.Copy(c, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(client); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.(syscall.Conn).SyscallConn(); err != nil {
		t.Error(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(b.Collector())
	all, err := registry.Gather()
	if err != nil || len(all) != 4 {
		t.Fatalf("%d families, %v", len(all), err)
	}
	if got := all[0]; got.GetName() != "proa_connections" || got.GetMetric()[0].GetGauge().GetValue() != 1 {
		t.Error(got)
	}
}

// TestForProcess checks that a small machine gets a small budget, and none an empty one.
func TestForProcess(t *testing.T) {
	small, large := ForProcess(1<<30), ForProcess(0)
	if small > 1<<30/8/connectionMemory || small < minConnections || large < small || large > maxConnections ||
		ForProcess(1) != minConnections {
		t.Errorf("%d, %d, %d", small, large, ForProcess(1))
	}
}
