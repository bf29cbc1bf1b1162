package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	proa "proa.dev/run"
	"proa.dev/test/ports"
)

// TestHelpOfEveryWord has every way to ask for help answered, that for help itself too.
func TestHelpOfEveryWord(t *testing.T) {
	for words, want := range map[string]string{
		"help help": "Usage: proa COMMAND", "--help --help": "Usage: proa COMMAND", "help -h": "Usage: proa COMMAND",
		"help down": "Usage: proa down", "down --help": "Usage: proa down", "help kubectl": "Usage: proa kubectl",
	} {
		var out bytes.Buffer
		err := run(t.Context(), &Env{Out: &out, Err: &out}, strings.Fields(words))
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("proa %s: %v\n%s", words, err, out.String())
		}
	}
	if err := run(t.Context(), &Env{}, []string{"help", "nothing"}); err == nil {
		t.Error("help about a command that does not exist")
	}
}

// TestFlagsOfACommandInAContainer: what follows -- is for the container, and is no reason to go on without a cluster.
func TestFlagsOfACommandInAContainer(t *testing.T) {
	for words, want := range map[string]bool{"exec p -- sh --help": false, "exec p -- sh -h": false, "get pods -h": true, "version --client": true} {
		if got := offline(strings.Fields(words)); got != want {
			t.Errorf("kubectl %s needs no cluster: %v", words, got)
		}
	}
}

// TestTimesOfDownThatContradict are refused.
func TestTimesOfDownThatContradict(t *testing.T) {
	for _, c := range []struct {
		seconds int
		now     bool
		want    time.Duration
		bad     bool
	}{{-1, false, longestStop, false}, {-1, true, time.Second, false}, {0, false, 0, false}, {7, false, 7 * time.Second, false}, {30, true, 0, true}, {-5, false, 0, true}} {
		if got, err := stopLimit(c.seconds, c.now); got != c.want || (err != nil) != c.bad {
			t.Errorf("--grace-period %d, --now %v: %v %v", c.seconds, c.now, got, err)
		}
	}
}

// TestStatusOfAnotherUsersCluster says nothing of what it cannot know, in JSON as little as to people.
func TestStatusOfAnotherUsersCluster(t *testing.T) {
	var out bytes.Buffer
	s := &status{DataDir: "/somewhere", Problems: []string{"no"}, unreadable: true}
	if err := s.print(&Env{Out: &out}, "json"); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["dataDir"] != "/somewhere" || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	if os.Geteuid() == 0 {
		return // root may read everything
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := looksOurs(cluster{dir}); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("purge: %v", err)
	}
}

// TestTokenForAServerOnLoopback: a server that nodes cannot reach is said to be one.
func TestTokenForAServerOnLoopback(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ports.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if why := notHeard(t.Context(), "https://127.0.0.1:1", "https://"+at); why != "" {
		t.Errorf("it listens there: %s", why)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if why := notHeard(t.Context(), "https://127.0.0.1:1", "https://"+at); !strings.Contains(why, "--listen 0.0.0.0:") {
		t.Errorf("nobody listens there: %q", why)
	}
}

// TestMoreNodesChangeNothingElse: for another number of nodes a running cluster is started again, but other settings that come along would be
// changed by that too, and are refused as ever.
func TestMoreNodesChangeNothingElse(t *testing.T) {
	u := &upper{stored: proa.Said{"node": {"vm"}, "nodes": {"2"}, "listen": {"127.0.0.1:6443"}}}
	for _, c := range []struct {
		said proa.Said
		want string
	}{
		{proa.Said{"node": {"vm"}, "nodes": {"3"}, "listen": {"127.0.0.1:6443"}}, ""},
		{proa.Said{"node": {"vm"}, "nodes": {"3"}, "listen": {"127.0.0.1:7443"}}, "--listen: it runs with 127.0.0.1:6443, you say 127.0.0.1:7443"},
		{proa.Said{"listen": {"127.0.0.1:6443"}}, "--nodes: it runs with 2, you say not set"},
	} {
		err := u.refuseChanges(cluster{"/d"}, 7, c.said)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v", c.said, err)
		}
	}
	simulated := &upper{stored: proa.Said{"simulate": {"2"}}}
	if err := simulated.refuseChanges(cluster{"/d"}, 7, proa.Said{"simulate": {"2"}, "node": {"vm"}, "nodes": {"2"}}); err == nil {
		t.Error("a cluster of simulated nodes gets real ones while it runs")
	}
}

// TestPurgeThroughALink: the data is gone, not only the link to it.
func TestPurgeThroughALink(t *testing.T) {
	dir := t.TempDir()
	folder, link := filepath.Join(dir, "folder"), filepath.Join(dir, "link")
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, "pki"), 0o700), os.Symlink(folder, link)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), &Env{Out: &out, Err: &out}, []string{"down", "--purge", "--data-dir", link}); err != nil {
		t.Fatal(err)
	}
	if isThere(folder) || isThere(link) {
		t.Errorf("the data is still there, after: %s", out.String())
	}
}

// TestDataFolderBehindALink: commands find the cluster by the path that its nodes have named things after.
func TestDataFolderBehindALink(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	straight, err := clusterAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := clusterAt(link); err != nil || c != straight {
		t.Errorf("the cluster behind %s is in %s, %v, want %s", link, c.dir, err, straight.dir)
	}
}
