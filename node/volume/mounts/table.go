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

// Mount is one line of the kernel's table of mounts.
type Mount struct {
	ID, Parent int
	// Device is the number of the file system, Root the folder of it that is shown, Point where it is shown.
	Device, Root, Point string
	Type, Source        string
	Options             []string
	// Shared says that mounts below it are seen by others, and theirs by us.
	Shared bool
}

// Table reads the mounts that this process sees.
func Table() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	return Parse(f)
}

// Parse reads a table as /proc/<pid>/mountinfo has it.
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

// unescape turns \040 and the like into the characters they stand for.
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

// Under are the mounts at a folder and below it, those that lie deeper or on top first: in the order in which they can be
// taken away.
func Under(table []Mount, dir string) (out []Mount) {
	for _, m := range table {
		if Within(m.Point, dir) {
			out = append(out, m)
		}
	}
	slices.Reverse(out) // of two at one place the later one is on top
	slices.SortStableFunc(out, func(a, b Mount) int { return strings.Count(b.Point, "/") - strings.Count(a.Point, "/") })
	return out
}

// Within says whether a path is a folder or in it. Both must be clean.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Holder is the mount that a path is on.
func Holder(table []Mount, path string) (found Mount, ok bool) {
	for _, m := range table {
		if Within(path, m.Point) && (!ok || len(m.Point) >= len(found.Point)) {
			found, ok = m, true
		}
	}
	return found, ok
}

// Shown are the places where the folder that a path names is shown as well, in whole or as part of something larger: those
// of the same file system and the same folder of it.
func Shown(table []Mount, path string) (out []string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	at, ok := Holder(table, real)
	if !ok {
		return nil
	}
	root := filepath.Join(at.Root, strings.TrimPrefix(strings.TrimPrefix(real, at.Point), "/"))
	for _, m := range table {
		if m.Device == at.Device && m.Root == root && m.Point != real {
			out = append(out, m.Point)
		}
	}
	return out
}
