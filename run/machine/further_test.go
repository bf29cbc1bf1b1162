package machine

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proa.dev/network/nodebridge"
	"proa.dev/run"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

func TestRewriteForBridge(t *testing.T) {
	machine := netip.MustParseAddr("100.64.3.1")
	for _, c := range []struct{ name, in, out, server string }{
		{"servers that all can reach", "search example.com\nnameserver 192.0.2.53\noptions ndots:2\n",
			"search example.com\nnameserver 192.0.2.53\noptions ndots:2\n", ""},
		{"one on the loopback", "nameserver 127.0.0.53\noptions edns0", "nameserver 100.64.3.1\noptions edns0\n", "127.0.0.53:53"},
		{"several on the loopback are replaced by the first", "nameserver ::1\nnameserver 127.0.0.1\nnameserver 192.0.2.53\n",
			"nameserver 100.64.3.1\nnameserver 192.0.2.53\n", "[::1]:53"},
		{"what is no address is kept", "nameserver fe80::1%eth0\nnameserver x\n", "nameserver fe80::1%eth0\nnameserver x\n", ""},
		{"nothing", "", "", ""},
	} {
		out, server := rewriteForBridge(c.in, machine)
		if out != c.out || server != c.server {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, out, server, c.out, c.server)
		}
	}
}

func TestParseStoredNetworks(t *testing.T) {
	prefixes := func(text string) (out []netip.Prefix) {
		for _, s := range strings.Fields(text) {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	for _, c := range []struct{ name, text, services, used, want string }{
		{"nothing yet", "", "10.96.0.0/16", "", ""},
		{"it stays", "100.64.3.0/24\n", "10.96.0.0/16", "10.96.0.0/16 10.244.0.0/16", "100.64.3.0/24"},
		{"Pods are there now", "100.64.3.0/24\n", "10.96.0.0/16", "100.64.0.0/16", ""},
		{"a second family", "100.64.3.0/24\n", "10.96.0.0/16 fd01::/108", "", ""},
		{"two", "100.64.3.0/24\nfd07::/64\n", "10.96.0.0/16 fd01::/108", "", "100.64.3.0/24 fd07::/64"},
		{"the other family", "100.64.3.0/24\n", "fd01::/108", "", ""},
		{"nonsense", "what\n", "10.96.0.0/16", "", ""},
	} {
		got := parseStoredNetworks(c.text, prefixes(c.services), prefixes(c.used))
		if !slices.Equal(got, prefixes(c.want)) {
			t.Errorf("%s: %v; want %q", c.name, got, c.want)
		}
	}
}

// TestAgentArgs checks that the first node gets the settings of the server, and further ones the same except those that only one node
// can have.
func TestAgentArgs(t *testing.T) {
	dir := t.TempDir()
	c, err := run.Load("", settings.Values{
		"data-dir": {dir}, "node": {"a"}, "nodes": {"3"}, "node-labels": {"x=1", "y=2"}, "max-pods": {"20"}, "log-level": {"warn"},
		"pod-manifest-path": {dir}, "simulate": {"7"}, "cluster-cidr": {"10.10.0.0/16"}, "ingress-http-port": {"8080"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range nodefolder.OfConfig(&c.Config) {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"a", "a-2", "a-3"}) {
		t.Errorf("the nodes are %v", names)
	}
	s := Machine{Server: &run.Server{Config: c},
		bridge: &nodebridge.Config{Networks: []netip.Prefix{netip.MustParsePrefix("100.64.3.0/24")}}}
	s.Node.IPs, s.Node.BinDir = s.bridge.Addresses(1), "/parts"
	f := nodefolder.Wanted(&s.Config.Config)[1]
	for of, want := range map[nodefolder.Node][]string{
		f: {
			"agent", "--server=https://100.64.3.1:6443", "--data-dir=" + filepath.Join(dir, "nodes", "a-3"), "--node=a-3",
			"--resolv-conf=" + f.ResolvConf(),
			"--node-ip=100.64.3.3", "--service-cidr=10.96.0.0/16", "--cluster-cidr=10.10.0.0/16", "--bin-dir=/parts", "--log-level=warn",
			"--node-labels=x=1", "--node-labels=y=2", "--max-pods=20",
		},
		nodefolder.First(dir, "a"): {
			"agent", "--server=https://127.0.0.1:6443", "--data-dir=" + dir, "--node=a", "--beside-server",
			"--node-ip=100.64.3.1", "--service-cidr=10.96.0.0/16", "--cluster-cidr=10.10.0.0/16", "--bin-dir=/parts", "--log-level=warn",
			"--node-labels=x=1", "--node-labels=y=2", "--pod-manifest-path=" + dir, "--max-pods=20", "--ingress-http-port=8080",
		},
	} {
		got := s.agentArgs(of)
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	for _, invalid := range []settings.Values{{"nodes": {"0"}}, {"nodes": {"51"}}, {"nodes": {"many"}},
		{"nodes": {"2"}, "node-ip": {"192.0.2.1"}}, {"nodes": {"2"}, "container-runtime-endpoint": {"/x"}}} {
		if _, err := run.Load("", invalid); err == nil {
			t.Errorf("%v was accepted", invalid)
		}
	}
}

// TestNodesDirIsSearchable checks that the folder of nodes gets the mode 0711 also if it was created with a strict umask: processes
// of Pods with other users must be able to pass through it.
func TestNodesDirIsSearchable(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(nodefolder.NodesDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := makeNodesDir(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(nodefolder.NodesDir(dir)); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("it is %v (%v), want 0711", info.Mode(), err)
	}
}
