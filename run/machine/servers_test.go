package machine

import (
	"fmt"
	"path/filepath"
	"testing"

	"proa.dev/client/remote"
	"proa.dev/kinds/kind"
)

// TestKnownServers checks that an agent learns the servers of its cluster and knows them after a restart, that it knows those that it was
// given by their own names and the others by that of API servers, and that nobody makes it try more than maxServers.
func TestKnownServers(t *testing.T) {
	var many []string
	for i := range 2 * maxServers {
		many = append(many, fmt.Sprintf("198.51.100.%d", i))
	}
	file, reconnects := filepath.Join(t.TempDir(), "servers"), 0
	for _, tt := range []struct {
		name       string
		addresses  []string
		want       string // if not empty
		servers    int
		reconnects int
	}{
		{"nothing is listed", nil, "[{first.example:443 first.example}] false", 1, 0},
		{"the only one", []string{"192.0.2.1"},
			"[{first.example:443 first.example} {192.0.2.1:6443 " + remote.ServerName + "}] false", 2, 0},
		{"two, and what is none", []string{"192.0.2.1", "192.0.2.2", "evil.example"},
			"[{first.example:443 first.example} {192.0.2.1:6443 " + remote.ServerName + "} {192.0.2.2:6443 " + remote.ServerName + "}] true",
			3, 1},
		{"too many", many, "", 1 + maxServers, 1},
		{"none is left", nil, "", 1 + maxServers, 1},
	} {
		k := restarted(t, file)
		view := &scriptedView{steps: [][]kind.Object{{slice("default", "kubernetes", tt.addresses...)}}}
		if err := k.follow(t.Context(), view, func() { reconnects++ }); err != nil {
			t.Fatal(err)
		}
		for _, k := range []*knownServers{k, restarted(t, file)} {
			all, several := k.all()
			if got := fmt.Sprint(all, several); len(all) != tt.servers || tt.want != "" && got != tt.want {
				t.Errorf("%s: %d servers, %s", tt.name, len(all), got)
			}
		}
		if reconnects != tt.reconnects {
			t.Errorf("%s: reconnected %d times, want %d", tt.name, reconnects, tt.reconnects)
		}
	}
}

func restarted(t *testing.T, file string) *knownServers {
	t.Helper()
	k, err := readServers(file, []string{"https://first.example"})
	if err != nil {
		t.Fatal(err)
	}
	return k
}
