package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// mount is one line of a mountinfo file.
type mount struct {
	point, fstype, source string
	options               []string // of the file system
}

// parseMounts reads a mountinfo file. Lines that are none are left out.
func parseMounts(text string) (out []mount) {
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 6 || len(tail) < 2 {
			continue
		}
		m := mount{point: unescape(head[4]), fstype: tail[0], source: unescape(tail[1])}
		if len(tail) > 2 {
			m.options = strings.Split(tail[2], ",")
		}
		out = append(out, m)
	}
	return out
}

// unescape undoes the octal numbers by which the kernel writes blanks in paths.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func mounts() ([]mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	return parseMounts(string(data)), nil
}

// mountsBelow are the mount points in a folder, the folder itself included, the last mounted first.
func mountsBelow(dir string) ([]string, error) {
	dir = resolved(dir)
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range all {
		if m.point == dir || strings.HasPrefix(m.point, strings.TrimSuffix(dir, "/")+"/") {
			out = append(out, m.point)
		}
	}
	slices.Reverse(out)
	return out, nil
}

// resolved follows symbolic links, as the kernel does before it notes a mount.
func resolved(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// unmountBelow unmounts everything below a folder. What is mounted at the folder itself is not ours, and stays.
func unmountBelow(dir string) error {
	dir = resolved(dir)
	for range 10 { // a mount may hide others
		points, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		points = slices.DeleteFunc(points, func(p string) bool { return p == dir })
		if len(points) == 0 {
			return nil
		}
		for _, p := range points {
			// A mount that somebody still uses leaves the tree now, and ends with its last user.
			_ = syscall.Unmount(p, syscall.MNT_DETACH|unmountNoFollow)
		}
	}
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	return fmt.Errorf("%q cannot be unmounted", points)
}

const unmountNoFollow = 0x8
