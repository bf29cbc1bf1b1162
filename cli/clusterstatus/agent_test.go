package clusterstatus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proa.dev/cli/localcluster"
	"proa.dev/run/pki"
)

// TestStatusOfAgentFolder checks that the status of the folder of a node's agent says what to do with the agent, and does not
// advise to start a cluster.
func TestStatusOfAgentFolder(t *testing.T) {
	for name, passed := range map[string]time.Duration{"valid": 0, "expired": 3 * 365 * 24 * time.Hour} {
		keys, err := pki.Ensure(t.TempDir(), pki.Options{Now: func() time.Time { return time.Now().Add(-passed) }})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := keys.Client("system:node:a", "system:nodes")
		if err != nil {
			t.Fatal(err)
		}
		c := localcluster.Cluster{Dir: t.TempDir()}
		if err := os.MkdirAll(c.Path("node/pki"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.Dir, "node/pki/client.pem"), append(pair.CertPEM, pair.KeyPEM...), 0o600); err != nil {
			t.Fatal(err)
		}
		s := Inspect(t.Context(), c)
		text := strings.Join(s.Problems, "\n")
		if s.Agent != "a" || s.Ready || !strings.Contains(text, "the agent of the node is not running") ||
			strings.Contains(text, "proa up") {
			t.Errorf("%s: %+v", name, s)
		}
		if strings.Contains(text, "proa token create --node a") != (name == "expired") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestStatusNamesBuilds checks that nodes of another build than the server's are named, and only those that proa runs.
func TestStatusNamesBuilds(t *testing.T) {
	nodes := []nodeStatus{{Name: "same", Build: "v2", ofProa: true}, {Name: "other", Build: "v1", ofProa: true},
		{Name: "unknown", ofProa: true}, {Name: "foreign"}}
	markStale(nodes, "v2")
	for i, want := range []string{"", "of another build than the server: v1", "of another build than the server: an earlier one", ""} {
		if got := nodes[i].describe(); got != strings.TrimSuffix("not ready, "+want, ", ") {
			t.Errorf("%s: %s", nodes[i].Name, got)
		}
	}
}
