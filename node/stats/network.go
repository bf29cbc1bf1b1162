package stats

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/fact"
	"proa.dev/node/netns"
)

// packets counts the packets of a network interface.
type packets struct {
	name                                             string
	received, receivedDropped, sent, transmitDropped uint64
}

// parseNet parses the counters of network interfaces, without the loopback interface.
func parseNet(text string) (out []summary.InterfaceStats) {
	forEachInterface(text, func(name string, number func(int) uint64) {
		out = append(out, summary.InterfaceStats{
			Name: name, RxBytes: new(number(0)), RxErrors: new(number(2)), TxBytes: new(number(8)), TxErrors: new(number(10)),
		})
	})
	return out
}

// parsePackets parses the packet counters of network interfaces, without the loopback interface.
func parsePackets(text string) (out []packets) {
	forEachInterface(text, func(name string, number func(int) uint64) {
		out = append(out, packets{
			name: name, received: number(1), receivedDropped: number(3), sent: number(9), transmitDropped: number(11),
		})
	})
	return out
}

// forEachInterface calls a function for each network interface but the loopback interface. number returns a column of
// /proc/net/dev: bytes, packets, errors, dropped packets and four more that were received, and from column 8 on the same of those
// that were sent.
func forEachInterface(text string, do func(name string, number func(column int) uint64)) {
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || name == "lo" || len(words) < 12 {
			continue
		}
		do(name, func(i int) uint64 {
			n, _ := strconv.ParseUint(words[i], 10, 64)
			return n
		})
	}
}

// network returns network statistics in which the default interface, eth0 if there is one, also stands for itself.
func network(all []summary.InterfaceStats, now metav1.Time) *summary.NetworkStats {
	if len(all) == 0 {
		return nil
	}
	first := all[0]
	for _, i := range all {
		if i.Name == "eth0" {
			first = i
		}
	}
	return &summary.NetworkStats{Time: now, InterfaceStats: first, Interfaces: all}
}

// namespaces caches the network namespaces of sandboxes, which do not change.
type namespaces struct {
	runtime Runtime
	mu      sync.Mutex // guards paths
	paths   map[string]string
}

func newNamespaces(r Runtime) *namespaces { return &namespaces{runtime: r, paths: map[string]string{}} }

// maxNamespaces limits the size of the cache.
const maxNamespaces = 1024

// of reads the counters of a Pod's own network.
func (s *namespaces) of(ctx context.Context, box *fact.Sandbox, now metav1.Time) (*summary.NetworkStats, []packets) {
	if !box.Network {
		return nil, nil
	}
	s.mu.Lock()
	path, found := s.paths[box.ID]
	s.mu.Unlock()
	if !found {
		var err error
		if path, err = s.runtime.NetworkNamespace(ctx, box.ID); err != nil {
			return nil, nil
		}
		s.mu.Lock()
		if len(s.paths) >= maxNamespaces {
			clear(s.paths)
		}
		s.paths[box.ID] = path
		s.mu.Unlock()
	}
	var text []byte
	err := netns.Do(path, func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/dev")
		return err
	})
	if err != nil {
		return nil, nil // the Pod has just ended
	}
	return network(parseNet(string(text)), now), parsePackets(string(text))
}
