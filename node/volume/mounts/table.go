package mounts

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Mount is one line of the kernel's mount table.
type Mount struct {
	ID, Parent int
	// Device is the number of the file system, Root the folder of it that is mounted, Point the mount point.
	Device, Root, Point string
	Type, Source        string
	Options             []string
	// Shared reports that mount events propagate to and from peers.
	Shared bool
}

// Table reads the mount table of this process.
func Table() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	return Parse(f)
}

// Parse parses a mount table in the format of /proc/<pid>/mountinfo.
func Parse(r io.Reader) (out []Mount, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20) // an overlay with many layers is long
	for in.Scan() {
		m, ok := parseLine(in.Text())
		if !ok {
			return nil, fmt.Errorf("read the mounts: %q is no line of a table of mounts", in.Text())
		}
		out = append(out, m)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	return out, nil
}

func parseLine(line string) (m Mount, ok bool) {
	// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
	left, right, found := strings.Cut(line, " - ")
	l, r := strings.Split(left, " "), strings.Split(right, " ")
	if !found || len(l) < 6 || len(r) < 2 {
		return m, false
	}
	id, err := strconv.Atoi(l[0])
	parent, err2 := strconv.Atoi(l[1])
	if err != nil || err2 != nil {
		return m, false
	}
	return Mount{
		ID: id, Parent: parent, Device: l[2], Root: unescape(l[3]), Point: unescape(l[4]), Options: strings.Split(l[5], ","),
		Type: unescape(r[0]), Source: unescape(r[1]),
		Shared: slices.ContainsFunc(l[6:], func(s string) bool { return strings.HasPrefix(s, "shared:") }),
	}, true
}

// unescape decodes escapes such as \040.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// Under returns the mounts at a folder and below it, in the order in which they can be unmounted: deeper and later ones
// first.
func Under(table []Mount, dir string) (out []Mount) {
	for _, m := range table {
		if Within(m.Point, dir) {
			out = append(out, m)
		}
	}
	slices.Reverse(out) // of two at one path the later one is on top
	slices.SortStableFunc(out, func(a, b Mount) int { return strings.Count(b.Point, "/") - strings.Count(a.Point, "/") })
	return out
}

// Within reports whether a path is a folder or in it. Both must be clean.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// HoldingMount returns the mount that a path is on.
func HoldingMount(table []Mount, path string) (found Mount, ok bool) {
	for _, m := range table {
		if Within(path, m.Point) && (!ok || len(m.Point) >= len(found.Point)) {
			found, ok = m, true
		}
	}
	return found, ok
}

// OtherMountPoints returns the other mount points at which the folder of a path is mounted: those of the same file system and the
// same folder of it.
func OtherMountPoints(table []Mount, path string) (out []string) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	at, ok := HoldingMount(table, resolved)
	if !ok {
		return nil
	}
	root := filepath.Join(at.Root, strings.TrimPrefix(strings.TrimPrefix(resolved, at.Point), "/"))
	for _, m := range table {
		if m.Device == at.Device && m.Root == root && m.Point != resolved {
			out = append(out, m.Point)
		}
	}
	return out
}
