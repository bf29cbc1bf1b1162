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

// parseNet reads the counters of interfaces, without the loopback.
func parseNet(text string) (out []summary.InterfaceStats) {
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || name == "lo" || len(words) < 11 {
			continue
		}
		number := func(i int) *uint64 {
			n, _ := strconv.ParseUint(words[i], 10, 64)
			return &n
		}
		out = append(out, summary.InterfaceStats{Name: name, RxBytes: number(0), RxErrors: number(2), TxBytes: number(8), TxErrors: number(10)})
	}
	return out
}

// network shows the first interface, which is eth0 where there is one, for itself.
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

// spaces remembers where the networks of sandboxes are; they stay there.
type spaces struct {
	runtime Runtime
	mu      sync.Mutex // guards paths
	paths   map[string]string
}

func newSpaces(r Runtime) *spaces { return &spaces{runtime: r, paths: map[string]string{}} }

// maxSpaces bounds what is remembered.
const maxSpaces = 1024

// of reads the counters of a Pod's own network.
func (s *spaces) of(ctx context.Context, box *fact.Sandbox, now metav1.Time) *summary.NetworkStats {
	if !box.Network {
		return nil
	}
	s.mu.Lock()
	path, found := s.paths[box.ID]
	s.mu.Unlock()
	if !found {
		var err error
		if path, err = s.runtime.NetworkNamespace(ctx, box.ID); err != nil {
			return nil
		}
		s.mu.Lock()
		if len(s.paths) >= maxSpaces {
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
		return nil // the Pod ends just now
	}
	return network(parseNet(string(text)), now)
}
