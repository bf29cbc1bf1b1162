package goprocess

import (
	"os"
	"strconv"
	"strings"
)

// MachineMemory returns the bytes of memory of the machine from a file like /proc/meminfo; 0 if it does not say.
func MachineMemory(path string) int64 {
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

// The bounds of ShareOfMemory.
const (
	leastShare = 512 << 20
	mostShare  = 4 << 30
)

// ShareOfMemory returns how much of a machine's memory one process may use by default: a quarter, from 512 MiB to 4 GiB.
func ShareOfMemory(machine int64) int64 { return min(max(machine/4, leastShare), mostShare) }
