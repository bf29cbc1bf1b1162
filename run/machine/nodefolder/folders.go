// Package nodefolder knows the nodes of this machine by their data folders: the paths of their files, the names of
// their bridges and tables, and the configuration of their container runtimes. It works while nothing runs.
package nodefolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"proa.dev/node/runtime"
	"proa.dev/run/settings"
)

// AgentDir returns the folder of the node agent in a data folder.
func AgentDir(dataDir string) string { return filepath.Join(dataDir, "node") }

// RuntimeDir returns the folder of the node's container runtime.
func RuntimeDir(dataDir string) string { return filepath.Join(AgentDir(dataDir), "containerd") }

// ImageDir returns the folder of image archives that are loaded when the node starts.
func ImageDir(dataDir string) string { return filepath.Join(AgentDir(dataDir), "images") }

// NodesDir returns the folder that has a data folder for each further node.
func NodesDir(dataDir string) string { return filepath.Join(dataDir, "nodes") }

// CNIDir returns the folder of the CNI configuration of proa's own network.
func CNIDir(dataDir string) string { return filepath.Join(AgentDir(dataDir), "cni") }

// SettingsFile returns the file in which an agent stores the settings of its cluster.
func SettingsFile(dataDir string) string {
	return filepath.Join(AgentDir(dataDir), "cluster-settings.json")
}

// ServersFile returns the file in which an agent stores the addresses of the servers of its cluster.
func ServersFile(dataDir string) string { return filepath.Join(AgentDir(dataDir), "servers") }

// BridgeFile returns the file that stores the networks of the bridge, so that nodes keep their addresses.
func BridgeFile(dataDir string) string { return filepath.Join(NodesDir(dataDir), "link") }

// RoutesFile returns the file that stores the networks to which routes were made. Another cluster on the machine may
// use the same protocol number for its routes.
func RoutesFile(dataDir string) string { return filepath.Join(AgentDir(dataDir), "pod-networks") }

// ServiceNetworksFile returns the file that stores the networks of the Services to which a route was made.
func ServiceNetworksFile(dataDir string) string {
	return filepath.Join(AgentDir(dataDir), "service-networks")
}

// ServerSettingsFile returns the file that stores the settings of the server whose process last ran the node. Commands read it where
// "proa up" has not started the cluster.
func ServerSettingsFile(dataDir string) string {
	return filepath.Join(AgentDir(dataDir), "server-settings.yaml")
}

// DNSAddressFile returns the file that stores the addresses that were added to the machine for the DNS server.
func DNSAddressFile(dataDir string) string { return filepath.Join(AgentDir(dataDir), "dns-addresses") }

// runtimeFile returns the file that stores how the runtime of a node was configured, for commands that end it.
func runtimeFile(dataDir string) string { return filepath.Join(AgentDir(dataDir), "runtime.json") }

// ControlSocket returns the socket at which the agent of a data folder accepts commands of this machine's root.
func ControlSocket(dataDir string) string {
	return filepath.Join(filepath.Dir(runtime.Socket(RuntimeDir(dataDir))), "agent.sock")
}

// DataDirs returns the data folders of the nodes of a data folder, the first node first, and the names of the further
// nodes.
func DataDirs(dataDir string) (dirs, names []string, err error) {
	all, err := Existing(dataDir)
	dirs, names = []string{dataDir}, []string{""}
	for _, f := range all {
		dirs, names = append(dirs, f.Dir), append(names, f.Name)
	}
	return dirs, names, err
}

// Node is a node of this machine, whose agent is a process of its own. The first node is the machine itself; each of the
// further ones has a network namespace.
type Node struct {
	Name string
	// Number is its position on the bridge; the first node has 1.
	Number int
	// Dir is the agent's data folder; that of the first node is the server's.
	Dir string
}

// First returns the first node of a data folder. Its name is in the settings of the server.
func First(dataDir, name string) Node { return Node{name, 1, dataDir} }

// LeavingDir returns the folder that an agent of the first node locks when it leaves the node to another one.
func LeavingDir(dataDir string) string { return filepath.Join(AgentDir(dataDir), "leaving") }

// NetNS returns the path where its network namespace is mounted; empty for the first node, which has that of the machine.
func (f Node) NetNS() string {
	if f.Number == 1 {
		return ""
	}
	return filepath.Join(f.Dir, "netns")
}

// LockDir returns the folder that its agent locks, see datafolder.Lock. In the folder of the first node the server has a lock too.
func (f Node) LockDir() string {
	if f.Number == 1 {
		return AgentDir(f.Dir)
	}
	return f.Dir
}

// LogFile returns the log file of its agent.
func (f Node) LogFile() string { return filepath.Join(f.LockDir(), "agent.log") }

// ResolvConf returns the file that names the DNS servers for the node and its Pods.
func (f Node) ResolvConf() string { return filepath.Join(f.Dir, "resolv.conf") }

// RemovalFile returns a file that exists when the user has agreed that the data of the node is removed.
func (f Node) RemovalFile() string { return filepath.Join(f.Dir, "remove-data") }

// Existing returns the further nodes that a data folder has, by number.
func Existing(dataDir string) (out []Node, err error) {
	entries, err := os.ReadDir(NodesDir(dataDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("find the nodes of this machine: %w", err)
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name()[strings.LastIndexByte(e.Name(), '-')+1:])
		if e.IsDir() && err == nil {
			out = append(out, Node{e.Name(), n, filepath.Join(NodesDir(dataDir), e.Name())})
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return a.Number - b.Number })
	return out, nil
}

// Wanted returns the further nodes that a config asks for.
func Wanted(c *settings.Config) (out []Node) {
	for n := 2; n <= c.Nodes && c.Node.Name != ""; n++ {
		name := fmt.Sprintf("%s-%d", c.Node.Name, n)
		out = append(out, Node{name, n, filepath.Join(NodesDir(c.DataDir), name)})
	}
	return out
}

// OfConfig returns the nodes of a config that run containers on this machine, the first one included.
func OfConfig(c *settings.Config) []Node {
	if c.Node.Name == "" {
		return nil
	}
	return append([]Node{First(c.DataDir, c.Node.Name)}, Wanted(c)...)
}

// FurtherNames returns the names of the further nodes that a data folder has, whether or not they run.
func FurtherNames(dataDir string) (names []string, err error) {
	all, err := Existing(dataDir)
	for _, f := range all {
		names = append(names, f.Name)
	}
	return names, err
}

// LogFile returns the log file of a part of the cluster in a data folder whose first node is first: of the server for node "",
// otherwise of the agent of a node. With containerd it is the log of the container runtime of the node, or of the first one.
func LogFile(dataDir, first, node string, containerd bool) (string, error) {
	if node == "" && !containerd {
		return filepath.Join(dataDir, "server.log"), nil
	}
	all, err := Existing(dataDir)
	if err != nil {
		return "", err
	}
	for _, f := range append([]Node{First(dataDir, first)}, all...) {
		switch {
		case f.Name != node && (node != "" || f.Number > 1):
		case containerd:
			return filepath.Join(RuntimeDir(f.Dir), "containerd.log"), nil
		default:
			return f.LogFile(), nil
		}
	}
	return "", fmt.Errorf("the cluster in %s has no node %q on this machine", dataDir, node)
}

// Unwanted returns the further nodes that exist and that the config does not ask for.
func Unwanted(c *settings.Config) ([]Node, error) {
	if c.Nodes == 0 {
		return nil, nil
	}
	have, err := Existing(c.DataDir)
	want := Wanted(c)
	return slices.DeleteFunc(have, func(f Node) bool { return slices.Contains(want, f) }), err
}
