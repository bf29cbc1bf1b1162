package localcluster

import (
	"os"
	"testing"

	proa "proa.dev/run"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// TestConfigOfServer checks that the settings of a server that ran a node are known, also if "proa up" has not started it or has
// started the cluster with others before, and that a server without a node leaves those of "proa up".
func TestConfigOfServer(t *testing.T) {
	c := Cluster{Dir: t.TempDir()}
	node := func() string {
		t.Helper()
		conf, found, err := c.Config()
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			return "not found"
		}
		return conf.Node.Name
	}
	run := func(values settings.Values) {
		t.Helper()
		values["data-dir"] = []string{c.Dir}
		conf, err := proa.Load("", values)
		if err == nil {
			err = nodefolder.StoreServerSettings(&conf.Config)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, name string) {
		t.Helper()
		if got := node(); got != name {
			t.Errorf("%s: the node is %q, want %q", when, got, name)
		}
	}
	want("before any start", "not found")
	run(settings.Values{})
	want("after a server without a node", "not found")
	run(settings.Values{"node": {"of-server"}, "tls-san": {"a.example", "b.example"}})
	want("after a server with a node", "of-server")
	if err := os.WriteFile(c.Path(SettingsFile), []byte("node: of-up\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("after a server with a node in the folder of another cluster", "of-server")
	run(settings.Values{})
	want("after a server without a node", "of-up")
}
