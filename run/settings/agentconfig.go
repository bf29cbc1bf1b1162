package settings

import (
	"errors"
	"fmt"
	"slices"

	"proa.dev/run/credentials"
)

// AgentConfig is the configuration of a node agent in a process of its own.
type AgentConfig struct {
	// Config has the data folder, the log level, the networks and the node.
	Config
	// Server is the URL of the API server, and Token the join token of the cluster. Servers are the URLs of all servers that were given.
	Server, Token string
	Servers       []string
	// Login is what a kubeconfig says, which takes the place of a token; nil without one. Server is then that of the
	// kubeconfig.
	Login *credentials.AgentLogin
	// BesideServer says that the node is the first one of the server whose data folder it shares, which has started the agent.
	BesideServer bool
}

// AgentCluster names the cluster that an agent joins: by the URLs of servers, separated by commas, and a join token, or by a
// kubeconfig. BesideServer is as in AgentConfig.
type AgentCluster struct {
	Server, Token, Kubeconfig string
	BesideServer              bool
}

// ForAgents returns all settings of an agent: those of the node, those few of the cluster that both must have, see WithClusterSettings,
// and those of Ingresses and Gateways, which only the first node of a server serves.
func ForAgents() []Setting {
	shared := []string{"data-dir", "service-cidr", "cluster-cidr", "log-level"}
	out := slices.DeleteFunc(serverSettings(), func(s Setting) bool { return !slices.Contains(shared, s.Name) })
	return slices.Concat(out, nodeSettings(), ingressSettings())
}

// OfProxies returns the names of the settings of Ingresses and Gateways.
func OfProxies() (names []string) {
	for _, s := range ingressSettings() {
		names = append(names, s.Name)
	}
	return names
}

// LoadAgent returns the configuration of an agent from its flags.
func LoadAgent(cluster AgentCluster, flags Values) (AgentConfig, error) {
	c := AgentConfig{Config: Default(), Token: cluster.Token, BesideServer: cluster.BesideServer}
	c.Servers = splitLists([]string{cluster.Server})
	c.Node.Name, c.given = DefaultNodeName(), flags
	for _, s := range ForAgents() {
		if vs := flags[s.Name]; len(vs) > 0 {
			if err := s.Set(&c.Config, vs); err != nil {
				return c, fmt.Errorf("--%s: %w", s.Name, err)
			}
		}
	}
	for _, name := range OfProxies() {
		if len(flags[name]) > 0 && !c.BesideServer {
			return c, fmt.Errorf("--%s is for a server: its own node serves Ingresses and Gateways, and other nodes do not", name)
		}
	}
	switch {
	case cluster.Kubeconfig != "" && (cluster.Server != "" || c.Token != ""):
		return c, errors.New("--kubeconfig says by itself which cluster to join, and as whom: leave out --server and --token (and PROA_TOKEN), or --kubeconfig")
	case cluster.Kubeconfig != "":
		return c, c.logIn(cluster.Kubeconfig)
	case len(c.Servers) == 0:
		return c, errors.New("say which cluster to join with --server https://ADDR:PORT, or with --kubeconfig FILE")
	}
	c.Server = c.Servers[0]
	return c, nil
}

// logIn reads a kubeconfig. If its user is a node, the agent is that node.
func (c *AgentConfig) logIn(file string) (err error) {
	if c.Login, err = credentials.ReadAgentLogin(file); err != nil {
		return err
	}
	c.Server, c.Servers = c.Login.Server, []string{c.Login.Server}
	name := c.Login.NodeName()
	if name == "" || name == c.Node.Name {
		return nil
	}
	if len(c.given["node"]) > 0 {
		return fmt.Errorf("the user of the kubeconfig %s is node %s, and cannot be node %s: leave out --node, or take the kubeconfig of that node", file, name, c.Node.Name)
	}
	c.Node.Name = name
	return nil
}
