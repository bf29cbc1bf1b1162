package clusterstatus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"proa.dev/cli/localcluster"
	proa "proa.dev/run"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine"
	"proa.dev/run/machine/nodefolder"
)

// addFailing adds what the server reports to administrators about its own parts: why a check fails, and which parts do
// not work.
func (s *Status) addFailing(ctx context.Context, a *localcluster.Access) {
	code, body, err := a.Get(ctx, proa.FailingPath)
	if err == nil && code == http.StatusNotFound {
		return // a server of a former version does not report it
	}
	var all []proa.Failing
	if err == nil {
		err = json.Unmarshal(body, &all)
	}
	if err != nil || code != http.StatusOK {
		s.Problems = append(s.Problems, fmt.Sprintf("the server does not report which of its parts work: it answers %d (%v)", code, err))
		return
	}
	for _, f := range all {
		name, isCheck := strings.CutPrefix(f.Part, "check ")
		if !isCheck {
			s.Failing = append(s.Failing, f)
			continue
		}
		for i := range s.Checks {
			if s.Checks[i].Name == name && !s.Checks[i].OK {
				s.Checks[i].Text = "failed: " + f.Error
			}
		}
	}
}

// agentProcess is the process of the agent of a node of this machine.
type agentProcess struct {
	Node        string `json:"node"`
	PID         int    `json:"pid"`
	MemoryBytes int64  `json:"memoryBytes"`
}

// agentsOf returns the agents of this machine's nodes that run, whether or not the server does.
func agentsOf(c localcluster.Cluster) (out []agentProcess, err error) {
	conf, found, err := c.Config()
	if err != nil || !found {
		return nil, err
	}
	for _, f := range nodefolder.OfConfig(&conf.Config) {
		pid, err := datafolder.LockHolder(f.LockDir())
		if err != nil {
			return out, err
		}
		if pid != 0 {
			out = append(out, agentProcess{f.Name, pid, residentMemory(pid)})
		}
	}
	return out, nil
}

// tryNodes checks whether the nodes of this machine work for Pods, by using their DNS and Services. Only root can enter
// their networks, and only root has nodes.
func (s *Status) tryNodes(ctx context.Context, c localcluster.Cluster, a *localcluster.Access) error {
	conf, found, err := c.Config()
	if err != nil || !found || os.Geteuid() != 0 {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.Clusters[0].Cluster.CA)
	for _, f := range machine.AskNodes(ctx, c.Dir, &conf.Config, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}) {
		s.Failing = append(s.Failing, proa.Failing{Part: f.Part + " on node " + f.Node, Error: f.Error})
		s.Problems = append(s.Problems, fmt.Sprintf("%s on node %s: %s", f.Part, f.Node, f.Error))
	}
	return nil
}
