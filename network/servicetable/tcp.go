package servicetable

import (
	"golang.org/x/sys/unix"

	"proa.dev/network/conntrack"
)

const (
	tcp = unix.IPPROTO_TCP
	// synSent is the state of a TCP connection whose first packet has no answer yet, as the kernel numbers states.
	synSent = 1
)

// collectRemovedTCP collects the TCP endpoints that a change removes.
func (t *Table) collectRemovedTCP(before, after []Port) {
	for _, old := range before {
		if old.Protocol != tcp {
			continue
		}
		now, _ := find(after, old)
		for _, a := range removedEndpoints(old, now) {
			t.removedTCP[a] = true
		}
	}
}

// isStale reports whether a conntrack entry is to be deleted.
func (r removedTCP) isStale(f *conntrack.Flow) bool { return f.State == synSent && r[f.Answered.From] }
