package run

import (
	"fmt"
	"slices"
)

// AgentConfig is everything that can be said about a node in a process of its own.
type AgentConfig struct {
	// Config has the data folder, the log level, the networks and the node.
	Config
	// Server is the URL of the API server, Token what lets a node join; see NewToken.
	Server, Token string
}

// AgentSettings are all settings of an agent in a process of its own: those of the node, and the few of the cluster that both
// must agree about.
func AgentSettings() []Setting {
	shared := []string{"data-dir", "service-cidr", "cluster-cidr", "log-level"}
	out := slices.DeleteFunc(serverSettings(), func(s Setting) bool { return !slices.Contains(shared, s.Name) })
	return append(out, nodeSettings()...)
}

// LoadAgent makes the configuration of an agent of what flags say.
func LoadAgent(server, token string, flags Said) (AgentConfig, error) {
	c := AgentConfig{Config: Default(), Server: server, Token: token}
	c.Node.Name = DefaultNodeName()
	for _, s := range AgentSettings() {
		if vs := flags[s.Name]; len(vs) > 0 {
			if err := s.Set(&c.Config, vs); err != nil {
				return c, fmt.Errorf("--%s: %w", s.Name, err)
			}
		}
	}
	if c.Server == "" {
		return c, fmt.Errorf("say which cluster to join with --server https://ADDR:PORT")
	}
	return c, nil
}
