package lifecycle

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// IsEnding tells whether a process was killed and is about to end.
func IsEnding(pid int) bool {
	const exiting, kill = 4, 1 << (syscall.SIGKILL - 1)
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	// The name of the program, which may have spaces, is in parentheses.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 7 || f[0] == "Z" || f[0] == "X" {
		return true
	}
	if flags, err := strconv.ParseUint(f[6], 10, 64); err == nil && flags&exiting != 0 {
		return true
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		if pending, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil && pending&kill != 0 {
			return true
		}
	}
	return false
}
