package machine

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/run/machine/agentjoin"
)

// maxServers bounds the servers that an agent learns. Whoever may write EndpointSlices in the namespace default can add some, which
// are tried in vain: they have no certificate of an API server.
const maxServers = 32

// knownServers are the API servers that an agent knows: those it was given, and those to which the Service default/kubernetes has led.
// These are kept in a file, so that the agent starts while the first is away.
type knownServers struct {
	file    string
	given   []remote.Server
	mu      sync.Mutex // guards learned
	learned []string
}

// readServers returns the servers with these URLs, and those in the file of an earlier run.
func readServers(file string, urls []string) (*knownServers, error) {
	k := &knownServers{file: file}
	for _, u := range urls {
		addr, err := agentjoin.HostPort(u)
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("the address of the server: %w", err)
		}
		k.given = append(k.given, remote.Server{Address: addr, Name: host})
	}
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read which servers the cluster has: %w", err)
	}
	k.learned = validServers(strings.Fields(string(text)))
	return k, nil
}

// validServers returns those of the addresses that are IP addresses with ports, at most maxServers.
func validServers(addresses []string) (out []string) {
	for _, a := range addresses {
		if _, err := netip.ParseAddrPort(a); err == nil && len(out) < maxServers {
			out = append(out, a)
		}
	}
	return out
}

// all returns the addresses of servers in the order in which they are tried first, and whether the cluster has several servers. The only
// server of a cluster may have two addresses, one for its own machine and one for others.
func (k *knownServers) all() (out []remote.Server, several bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out = slices.Clone(k.given)
	for _, a := range k.learned {
		if !slices.ContainsFunc(out, func(s remote.Server) bool { return s.Address == a }) {
			out = append(out, remote.Server{Address: a, Name: remote.ServerName})
		}
	}
	return out, len(k.learned) > 1 || len(k.given) > 1
}

// follow keeps the list up to date by a view of EndpointSlices until ctx ends. It calls reconnect when the cluster begins or
// ceases to have several servers.
func (k *knownServers) follow(ctx context.Context, behind client.View, reconnect func()) error {
	for now := range watchServers(ctx, behind, nil) {
		if now = validServers(now); len(now) == 0 { // nothing was listed yet
			continue
		}
		_, before := k.all()
		k.mu.Lock()
		k.learned = now
		k.mu.Unlock()
		if err := os.WriteFile(k.file, []byte(strings.Join(now, "\n")+"\n"), 0o600); err != nil {
			return fmt.Errorf("keep which servers the cluster has: %w", err)
		}
		if _, several := k.all(); several != before {
			reconnect()
		}
	}
	return nil
}
