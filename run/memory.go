package run

import (
	"cmp"

	"proa.dev/internal/connlimit"
	"proa.dev/run/goprocess"
	"proa.dev/server/httpapi"
)

// The bounds of the defaults. Less memory for requests would be too little for one large object, and more is of no use. More bytes for a
// namespace would be more than a quarter of what the embedded store can have.
const (
	leastRequestMemory = 512 << 20
	mostRequestMemory  = 4 << 30

	leastNamespaceBytes = 128 << 20
	mostNamespaceBytes  = 2 << 30
)

// requestMemory returns how many bytes of memory requests may hold together: the setting, or a quarter of the machine's
// memory within bounds.
func (c *Config) requestMemory() int64 {
	if c.RequestMemory > 0 {
		return c.RequestMemory
	}
	total := goprocess.MachineMemory("/proc/meminfo")
	if total == 0 {
		return httpapi.DefaultMemory
	}
	return min(max(total/4, leastRequestMemory), mostRequestMemory)
}

// openConnections returns the budget of the connections of this process.
func (s *Server) openConnections() *connlimit.Budget {
	memory := goprocess.MachineMemory("/proc/meminfo")
	return connlimit.New(cmp.Or(s.MaxConnections, connlimit.ForProcess(memory)), s.log)
}

// ConnectionBudget returns the budget that all listeners of the process share.
func (s *Server) ConnectionBudget() *connlimit.Budget { return s.connections }

// namespaceBytes returns how many bytes the objects of one namespace may have in the store: the setting, or an eighth of the machine's
// memory within bounds.
func (c *Config) namespaceBytes() int64 {
	if c.NamespaceBytes > 0 {
		return c.NamespaceBytes
	}
	return min(max(goprocess.MachineMemory("/proc/meminfo")/8, leastNamespaceBytes), mostNamespaceBytes)
}
