package run

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"proa.dev/kinds/quantity"
	"proa.dev/server"
)

// The bounds of the memory that requests may hold when nobody says how much: less is too little for one large object, and more is
// of no use.
const (
	leastRequestMemory = 512 << 20
	mostRequestMemory  = 4 << 30
)

// parseMemory reads an amount of memory, such as 2Gi.
func parseMemory(v string) (int64, error) {
	q, err := quantity.Parse(v)
	if err != nil || q.Value() < 64<<20 {
		return 0, fmt.Errorf("%q is not an amount of memory of 64Mi or more, such as 2Gi", v)
	}
	return q.Value(), nil
}

// requestMemory is how much memory requests may hold: as it is set, or a quarter of the machine's.
func (c *Config) requestMemory() int64 {
	if c.RequestMemory > 0 {
		return c.RequestMemory
	}
	total := machineMemory("/proc/meminfo")
	if total == 0 {
		return server.DefaultMemory
	}
	return min(max(total/4, leastRequestMemory), mostRequestMemory)
}

// machineMemory is how many bytes of memory the machine has, as a file like /proc/meminfo says; 0 when it does not.
func machineMemory(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
