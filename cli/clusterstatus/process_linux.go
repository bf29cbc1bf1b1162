package clusterstatus

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// residentMemory returns the resident set size of a process; zero if it is unknown.
func residentMemory(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// diskFree returns the free bytes of the disk of a folder; zero if they are unknown.
func diskFree(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0
	}
	return int64(s.Bavail) * s.Bsize
}

// diskUse returns the disk space of a file, which is less than its length for a file with holes.
func diskUse(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
