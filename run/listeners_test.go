package run

import (
	"strings"
	"testing"

	"proa.dev/run/settings"
)

// TestAPIAddresses checks at which addresses a server listens.
func TestAPIAddresses(t *testing.T) {
	for _, c := range []struct{ settings, want string }{
		{"", "127.0.0.1:6443"},
		{"listen=127.0.0.1:7443", "127.0.0.1:7443"},
		{"listen=0.0.0.0:6443 node=a", "0.0.0.0:6443"},
		{"listen=:6443 node=a", ":6443"},
		{"listen=192.0.2.7:6443 node=a", "192.0.2.7:6443"},
		{"node=a node-ip=192.0.2.9", "127.0.0.1:6443 192.0.2.9:6443"},
		{"listen=[::1]:6443 node=a node-ip=192.0.2.9", "[::1]:6443 192.0.2.9:6443"},
		{"node=a node-ip=127.0.0.1", "127.0.0.1:6443"},
		{"simulate=3", "127.0.0.1:6443"},
		{"listen=127.0.0.1:0 node=a", "127.0.0.1:0"},
		{"node=a nodes=3", "127.0.0.1:6443"}, // and the bridge, which exists only after the server has created it
	} {
		given := settings.Values{}
		for word := range strings.FieldsSeq(c.settings) {
			name, value, _ := strings.Cut(word, "=")
			given[name] = []string{value}
		}
		conf, err := Load("", given)
		if err != nil {
			t.Fatalf("%s: %v", c.settings, err)
		}
		if got := strings.Join(conf.APIAddresses(), " "); got != c.want {
			t.Errorf("with %q the server listens at %s, want %s", c.settings, got, c.want)
		}
	}
}
