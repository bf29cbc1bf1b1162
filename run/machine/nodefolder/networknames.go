package nodefolder

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net"
	"slices"
	"strings"

	"proa.dev/network/nodebridge"
	"proa.dev/network/noderoutes"
	netpod "proa.dev/network/podnetwork"
	"proa.dev/run/datafolder"
	"proa.dev/run/hostaddress"
)

// PodNetwork returns the names of the pod network of the node of a data folder. Nodes of several clusters on one
// machine must not share names.
func PodNetwork(dataDir, name string, log *slog.Logger) netpod.Config {
	c := netpod.Config{DataDir: AgentDir(dataDir), NodeName: name, Log: log}
	if dataDir != datafolder.Default() {
		sum := sha256.Sum256([]byte(dataDir))
		c.Bridge, c.Table = "proa"+hex.EncodeToString(sum[:4]), "proa-"+hex.EncodeToString(sum[:4])
	}
	return c
}

// ServiceTable returns the name of the nftables table of Services, different for each cluster.
func ServiceTable(dataDir string) string {
	if c := PodNetwork(dataDir, "", nil); c.Table != "" {
		return c.Table + "-services"
	}
	return ""
}

// PolicyTable returns the name of the nftables table of network policies, different for each cluster.
func PolicyTable(dataDir string) string {
	if c := PodNetwork(dataDir, "", nil); c.Table != "" {
		return c.Table + "-policies"
	}
	return ""
}

// NodeRoutes returns the names of the routes to other nodes, different for each cluster.
func NodeRoutes(dataDir string) noderoutes.Config {
	c := PodNetwork(dataDir, "", nil)
	if c.Table == "" {
		return noderoutes.Config{Alone: true} // other clusters have other protocol numbers, see below
	}
	sum := sha256.Sum256([]byte(dataDir))
	// Routes are told apart by a number that has one byte; the first hundred are those of others. Two clusters on one machine may
	// happen to have the same.
	return noderoutes.Config{Table: c.Table + "-nodes", Device: "pv" + hex.EncodeToString(sum[:4]), Protocol: 100 + int(sum[0])%80,
		Alone: !OtherClustersHere(dataDir)}
}

// Tunnel returns the name of the interface of the tunnels to other nodes.
func Tunnel(dataDir string) string {
	return cmp.Or(NodeRoutes(dataDir).Device, noderoutes.DefaultDevice)
}

// NodeBridge returns the names of the bridge that the nodes of a data folder share, different for each cluster.
func NodeBridge(dataDir string) nodebridge.Config {
	sum := sha256.Sum256([]byte(dataDir))
	id := hex.EncodeToString(sum[:4])
	return nodebridge.Config{Bridge: hostaddress.BridgePrefix + id, Table: "proa-" + id + "-link"}
}

// OtherClustersHere tells whether another cluster has Pods on this machine: the bridge of their network exists.
func OtherClustersHere(dataDir string) bool {
	links, err := net.Interfaces()
	if err != nil {
		return false
	}
	own := PodNetwork(dataDir, "", nil).BridgeName()
	return slices.ContainsFunc(links, func(l net.Interface) bool { return strings.HasPrefix(l.Name, "proa") && l.Name != own })
}
