package nodejoin_test

import (
	"testing"

	"proa.dev/kinds/lib/nodejoin"
)

// TestReservedNodeNames checks that no token joins under a name that clients know as something else.
func TestReservedNodeNames(t *testing.T) {
	for _, name := range []string{
		"", "A", "a_b", "a/b", "..", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"localhost", "localhost.localdomain", "a.localhost", "web.shop.svc", "web.shop.svc.corp.example", "svc", "a.cluster.local",
		"cluster.local", "127.0.0.1", "0.0.0.0", "169.254.169.254", "224.0.0.1",
	} {
		if nodejoin.CheckName(name) == "" {
			t.Errorf("%q may be the name of a node", name)
		}
	}
	for _, name := range []string{"a", "node-1", "ip-10-0-0-7.eu-west-1.compute.internal", "10.0.0.7", "svc-1", "kubernetes-1",
		"kubernetes.example.org", "my-localhost.example", "1"} {
		if why := nodejoin.CheckName(name); why != "" {
			t.Errorf("%q may not be the name of a node: %s", name, why)
		}
	}
}

// TestIsBootstrap checks that a user counts as a bootstrap token by its name or by its groups.
func TestIsBootstrap(t *testing.T) {
	for _, c := range []struct {
		name   string
		groups []string
		want   bool
	}{
		{"system:bootstrap:abcdef", nil, true}, {"x", []string{"system:bootstrappers"}, true},
		{"x", []string{"a", "system:bootstrappers:proa:nodes"}, true},
		{"x", []string{"system:bootstrappersx"}, false}, {"system:node:a", []string{"system:nodes"}, false},
	} {
		if got := nodejoin.IsBootstrap(c.name, c.groups); got != c.want {
			t.Errorf("%s in %v: %v", c.name, c.groups, got)
		}
	}
}
