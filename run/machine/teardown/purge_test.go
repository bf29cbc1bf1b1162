package teardown

import (
	"fmt"
	"os"
	"testing"

	"proa.dev/run/machine/nodefolder"
)

// TestServiceNetworks checks which routes to Services are those of a node that has stored no networks, because a former version ran it.
func TestServiceNetworks(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(nodefolder.AgentDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(when string, otherNodes bool, want string) {
		t.Helper()
		if got, err := serviceNetworks(dir, otherNodes); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v, want %s", when, got, err, want)
		}
	}
	check("alone", false, "[0.0.0.0/0 ::/0]")
	check("beside other nodes", true, "[]")
	if err := os.WriteFile(nodefolder.ServiceNetworksFile(dir), []byte("10.96.0.0/16\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("with networks", false, "[10.96.0.0/16]")
}
