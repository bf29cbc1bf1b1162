package lab

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNetwork connects two network namespaces, sends data from one to the other, and removes them.
func TestNetwork(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	left, err := New()
	if err != nil {
		t.Fatal(err)
	}
	right, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if err := Link(End{left, "eth0", []string{"192.0.2.1/30"}}, End{right, "eth0", []string{"192.0.2.2/30"}}); err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	err = right.Do(func() error {
		l, err = net.Listen("tcp", "192.0.2.2:80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := left.Dial(t.Context(), &net.Dialer{}, "tcp", "192.0.2.2:80")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	out, err := left.Command(t.Context(), "ip", "-o", "link").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "eth0") || strings.Count(string(out), "\n") != 2 {
		t.Errorf("the links are\n%s%v", out, err)
	}
	if err := left.Set("ipv4/ip_forward=1"); err != nil {
		t.Error(err)
	}
	path := left.Path()
	for _, n := range []*Net{left, right} {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		t.Error("the process that held the namespace is left")
	}
	if err := left.IP("link"); err == nil {
		t.Error("the namespace is still there")
	}
}
