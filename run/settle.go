package run

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settleAfter is how long after a process is ready it is done with what only its start needed.
const settleAfter = 5 * time.Second

// Settle gives back, once and a little later, the memory that only the start of the process needed: what it allocated and
// dropped, and the pages of the program that ran once. Those were never more than a copy of the file: the kernel keeps them as
// long as it has room, they only no longer count as ours, and come back when they are used again.
func Settle() *time.Timer { return time.AfterFunc(settleAfter, settle) }

func settle() {
	debug.FreeOSMemory()
	exe, err := os.Executable()
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return // not on Linux, or not allowed: nothing is lost
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if from, to, ok := programPages(lines.Text(), exe); ok {
			// It is advice: if the kernel does not take it, the pages stay.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		}
	}
}

// programPages reads a line of /proc/self/maps and returns the range of memory it tells of, if that is a part of the program
// that nobody can have written to.
func programPages(line, exe string) (from, to uintptr, ok bool) {
	words := strings.Fields(line) // range, permissions, offset, device, inode, path
	if len(words) != 6 || words[5] != exe || words[1] != "r-xp" && words[1] != "r--p" {
		return 0, 0, false
	}
	low, high, _ := strings.Cut(words[0], "-")
	a, err := strconv.ParseUint(low, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	b, err := strconv.ParseUint(high, 16, 64)
	if err != nil || b <= a {
		return 0, 0, false
	}
	return uintptr(a), uintptr(b), true
}
