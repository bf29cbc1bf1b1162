package run

import (
	"errors"
	"fmt"
	"slices"
)

// AgentConfig is everything that can be said about a node in a process of its own.
type AgentConfig struct {
	// Config has the data folder, the log level, the networks and the node.
	Config
	// Server is the URL of the API server, Token what lets a node join; see NewToken.
	Server, Token string
	// Login is what a kubeconfig says in place of a token; nil without one. Server is then that of the kubeconfig.
	Login *AgentLogin
}

// AgentCluster is how an agent is told which cluster to join: the URL of a server and a token, or the file of a kubeconfig.
type AgentCluster struct{ Server, Token, Kubeconfig string }

// AgentSettings are all settings of an agent in a process of its own: those of the node, and the few of the cluster that both
// must agree about, see Agree.
func AgentSettings() []Setting {
	shared := []string{"data-dir", "service-cidr", "cluster-cidr", "log-level"}
	out := slices.DeleteFunc(serverSettings(), func(s Setting) bool { return !slices.Contains(shared, s.Name) })
	return append(out, nodeSettings()...)
}

// LoadAgent makes the configuration of an agent of what flags say.
func LoadAgent(cluster AgentCluster, flags Said) (AgentConfig, error) {
	c := AgentConfig{Config: Default(), Server: cluster.Server, Token: cluster.Token}
	c.Node.Name, c.said = DefaultNodeName(), flags
	for _, s := range AgentSettings() {
		if vs := flags[s.Name]; len(vs) > 0 {
			if err := s.Set(&c.Config, vs); err != nil {
				return c, fmt.Errorf("--%s: %w", s.Name, err)
			}
		}
	}
	switch {
	case cluster.Kubeconfig != "" && (c.Server != "" || c.Token != ""):
		return c, errors.New("--kubeconfig says by itself which cluster to join, and as whom: leave out --server and --token (and PROA_TOKEN), or --kubeconfig")
	case cluster.Kubeconfig != "":
		return c, c.logIn(cluster.Kubeconfig)
	case c.Server == "":
		return c, errors.New("say which cluster to join with --server https://ADDR:PORT, or with --kubeconfig FILE")
	}
	return c, nil
}

// logIn takes over what a kubeconfig says. The node is called as the kubeconfig says, if its user is a node.
func (c *AgentConfig) logIn(file string) (err error) {
	if c.Login, err = ReadAgentLogin(file); err != nil {
		return err
	}
	c.Server = c.Login.Server
	name := c.Login.NodeName()
	if name == "" || name == c.Node.Name {
		return nil
	}
	if len(c.said["node"]) > 0 {
		return fmt.Errorf("the user of the kubeconfig %s is node %s, and cannot be node %s: leave out --node, or take the kubeconfig of that node", file, name, c.Node.Name)
	}
	c.Node.Name = name
	return nil
}
