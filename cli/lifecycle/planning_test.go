package lifecycle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/cli/localcluster"
	"proa.dev/run/settings"
)

// TestNodesMayChangeOnlyAlone checks that "up" changes the number of nodes of a running cluster, and rejects changes of other
// settings.
func TestNodesMayChangeOnlyAlone(t *testing.T) {
	u := &upCommandRun{stored: settings.Values{"node": {"vm"}, "nodes": {"2"}, "listen": {"127.0.0.1:6443"}}}
	for _, c := range []struct {
		values settings.Values
		want   string
	}{
		{settings.Values{"node": {"vm"}, "nodes": {"3"}, "listen": {"127.0.0.1:6443"}}, ""},
		{settings.Values{"node": {"vm"}, "nodes": {"3"}, "listen": {"127.0.0.1:7443"}},
			"--listen: it runs with 127.0.0.1:6443, and you gave 127.0.0.1:7443"},
		{settings.Values{"listen": {"127.0.0.1:6443"}}, "--nodes: it runs with 2, and you gave not set"},
	} {
		err := u.refuseChanges(localcluster.Cluster{Dir: "/d"}, 7, c.values)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v", c.values, err)
		}
	}
	simulated := &upCommandRun{stored: settings.Values{"simulate": {"2"}}}
	if err := simulated.refuseChanges(localcluster.Cluster{Dir: "/d"}, 7,
		settings.Values{"simulate": {"2"}, "node": {"vm"}, "nodes": {"2"}}); err == nil {
		t.Error("a cluster of simulated nodes gets real ones while it runs")
	}
}

// TestPurgeOfAnotherUsersCluster checks that purging a folder of another user fails with an error that says so.
func TestPurgeOfAnotherUsersCluster(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := checkDataFolder(localcluster.Cluster{Dir: dir}); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("purge: %v", err)
	}
}

// TestNoNodeIsRemembered checks that a cluster that was started with --no-node gets no node by a later start that does not ask for one.
func TestNoNodeIsRemembered(t *testing.T) {
	for _, c := range []struct {
		name           string
		noNode         bool
		stored, values settings.Values
		want           bool // nodes of some kind are wanted
	}{
		{"the first start", false, nil, settings.Values{}, true},
		{"--no-node", true, nil, settings.Values{}, false},
		{"--no-node later", true, settings.Values{"node": {"a"}}, settings.Values{"node": {"a"}, "nodes": {"2"}}, false},
		{"after --no-node", false, settings.Values{"listen": {":1"}}, settings.Values{"listen": {":1"}}, false},
		{"--node after --no-node", false, settings.Values{"listen": {":1"}}, settings.Values{"listen": {":1"}, "node": {"a"}}, true},
		{"--nodes after --no-node", false, settings.Values{"listen": {":1"}}, settings.Values{"listen": {":1"}, "nodes": {"2"}}, true},
		{"--simulate after --no-node", false, settings.Values{"listen": {":1"}}, settings.Values{"simulate": {"2"}}, true},
		{"as before", false, settings.Values{"node": {"a"}}, settings.Values{"node": {"a"}}, true},
	} {
		u := &upCommandRun{noNode: c.noNode, stored: c.stored}
		u.nodes(c.values)
		if got := c.values["node"] != nil || c.values["simulate"] != nil; got != c.want {
			t.Errorf("%s: %v", c.name, c.values)
		}
	}
}

// TestNoNodeContradictsNodes checks that --no-node with a flag that asks for nodes is an error. It takes precedence over the config file.
func TestNoNodeContradictsNodes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"node", "nodes", "simulate"} {
		u := &upCommandRun{noNode: true}
		_, _, err := u.plan(settings.Values{"data-dir": {dir}, name: {"1"}})
		if err == nil || !strings.Contains(err.Error(), "--"+name+" asks for nodes") {
			t.Errorf("--no-node --%s: %v", name, err)
		}
	}
	u := &upCommandRun{noNode: true, config: filepath.Join(dir, "config.yaml")}
	if err := os.WriteFile(u.config, []byte("node: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, _, err := u.plan(settings.Values{"data-dir": {dir}})
	if err != nil || conf.Node.Name != "" {
		t.Errorf("--no-node with a node in the config file: node %q, %v", conf.Node.Name, err)
	}
}
