package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Host describes the cgroup file systems of the machine.
type Host struct {
	// Version is 1 or 2. A host that mounts controllers separately is of version 1, even if it also mounts version 2.
	Version int
	// Mounts is the mount point of each controller. With version 2 all of them have the same.
	Mounts map[string]string
	// Unified is the mount point of version 2; a host of version 1 may have one too, without the controllers that are
	// used here.
	Unified string
	// Swap reports whether the kernel can limit swap.
	Swap bool
	// Pages are the sizes of huge pages in the kernel's notation: 2MB, 1GB.
	Pages []string
}

// FindHost reads the cgroup file systems of this machine.
func FindHost() (Host, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Host{}, fmt.Errorf("look for groups: %w", err)
	}
	defer f.Close()
	h, err := parseMounts(f)
	if err != nil {
		return Host{}, err
	}
	if h.Version == 2 {
		names, err := os.ReadFile(filepath.Join(h.Unified, "cgroup.controllers"))
		if err != nil {
			return Host{}, fmt.Errorf("look for controllers: %w", err)
		}
		for _, c := range strings.Fields(string(names)) {
			h.Mounts[c] = h.Unified
		}
	}
	h.Pages, h.Swap = pageSizes("/sys/kernel/mm/hugepages"), h.limitsSwap()
	for _, c := range []string{"cpu", "memory", "pids"} {
		if h.Mounts[c] == "" {
			return Host{}, fmt.Errorf("the kernel offers no %q controller for groups: mount it, or enable it on the kernel's command line", c)
		}
	}
	return h, nil
}

// limitsSwap looks for the file that limits swap. With version 2 the root cgroup has none, so the cgroup of this
// process is checked.
func (h Host) limitsSwap() bool {
	file := filepath.Join(h.Mounts["memory"], "memory.memsw.limit_in_bytes")
	if h.Version == 2 {
		self, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return false
		}
		_, group, _ := strings.Cut(strings.TrimSpace(string(self)), "::")
		file = filepath.Join(h.Unified, group, "memory.swap.max")
	}
	_, err := os.Stat(file)
	return err == nil
}

// parseMounts reads /proc/self/mountinfo. If a controller is mounted several times, the shortest path is used.
func parseMounts(r io.Reader) (Host, error) {
	h := Host{Mounts: map[string]string{}}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	shorter := func(old, candidate string) string {
		if old == "" || len(candidate) < len(old) {
			return candidate
		}
		return old
	}
	for s.Scan() {
		// 36 35 98:0 /root /mount options optional... - type source super-options
		before, after, ok := strings.Cut(s.Text(), " - ")
		front, back := strings.Fields(before), strings.Fields(after)
		if !ok || len(front) < 5 || len(back) < 3 {
			continue
		}
		switch point := unescape(front[4]); back[0] {
		case "cgroup2":
			h.Unified = shorter(h.Unified, point)
		case "cgroup":
			for option := range strings.SplitSeq(back[2], ",") {
				if controller := strings.TrimPrefix(option, "name="); option != "rw" && option != "ro" {
					h.Mounts[controller] = shorter(h.Mounts[controller], point)
				}
			}
		}
	}
	if err := s.Err(); err != nil {
		return Host{}, fmt.Errorf("read the table of mounts: %w", err)
	}
	switch {
	case h.Mounts["memory"] != "" || h.Mounts["cpu"] != "":
		h.Version = 1
	case h.Unified != "":
		h.Version, h.Mounts = 2, map[string]string{}
	default:
		return Host{}, errors.New("no cgroup file system is mounted: mount one at /sys/fs/cgroup")
	}
	return h, nil
}

// unescape decodes the kernel's escapes of blanks in paths.
func unescape(s string) string {
	for i := 0; i+3 < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
			s = s[:i] + string([]byte{byte(c)}) + s[i+4:]
		}
	}
	return s
}

// pageSizes reads the sizes of huge pages from a folder with names such as hugepages-2048kB.
func pageSizes(dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // a kernel without huge pages
	}
	for _, e := range entries {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		if err == nil && kb > 0 {
			out = append(out, PageName(kb*1024))
		}
	}
	return out
}

// PageName returns the kernel's name of a size of huge pages.
func PageName(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for bytes%1024 == 0 && bytes > 0 && i < len(units)-1 {
		bytes /= 1024
		i++
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}

// dirs returns the folders of a cgroup, one for each mount.
func (h Host) dirs(name string) []string {
	if h.Version == 2 {
		return []string{filepath.Join(h.Unified, name)}
	}
	points := slices.Sorted(maps.Values(h.Mounts))
	if h.Unified != "" {
		points = append(points, h.Unified)
	}
	points = slices.Compact(points)
	for i := range points {
		points[i] = filepath.Join(points[i], name)
	}
	return points
}

// dir returns the folder of a cgroup under one controller, empty if the host does not have the controller.
func (h Host) dir(controller, name string) string {
	if h.Version == 2 {
		return filepath.Join(h.Unified, name)
	}
	point, ok := h.Mounts[controller]
	if !ok {
		return ""
	}
	return path.Join(point, name)
}
