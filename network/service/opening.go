package service

import (
	"golang.org/x/sys/unix"

	"proa.dev/network/conntrack"
)

const (
	tcp = unix.IPPROTO_TCP
	// synSent is the state of a connection whose first packet has had no answer, as the kernel numbers them.
	synSent = 1
)

// noteOpenings remembers the TCP endpoints that are gone.
func (t *table) noteOpenings(before, after []port) {
	for _, old := range before {
		if old.protocol != tcp {
			continue
		}
		now, _ := find(after, old)
		for _, a := range parted(old, now) {
			t.openings[a] = true
		}
	}
}

// lost says which connections the kernel shall forget.
func (o openings) lost(f *conntrack.Flow) bool { return f.State == synSent && o[f.Answered.From] }
