package preflight

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Facts are what is known about a host.
type Facts struct {
	Root         bool
	Release      string
	Capabilities uint64
	FileSystems  []string
	// Loaded are the modules that are loaded or built in, Loadable those that can be loaded. Options is the
	// configuration of the kernel, nil if it is not available.
	Loaded, Loadable []string
	Options          map[string]string
	CgroupVersion    int
	Controllers      []string
	Seccomp          bool
	AppArmor         bool
	SELinux          bool
	UserNamespaces   int
	Swap, Memory     int64
	CPUs             int

	InotifyInstances, InotifyWatches int
	OpenFiles                        uint64
	ClockSynchronized                bool

	DataDir, DataFS    string
	DiskFree, DiskSize int64
	BinDir             string
	Parts              []Part
	Ports              []Port
}

// read reads facts from files. What cannot be read is left out.
func (f *Facts) read(root fs.FS) {
	text := func(name string) string { data, _ := fs.ReadFile(root, name); return string(data) }
	number := func(name string) int { n, _ := strconv.Atoi(strings.TrimSpace(text(name))); return n }
	f.Release = strings.TrimSpace(text("proc/sys/kernel/osrelease"))
	f.Capabilities = effective(text("proc/self/status"))
	for line := range strings.Lines(text("proc/filesystems")) {
		if words := strings.Fields(line); len(words) > 0 {
			f.FileSystems = append(f.FileSystems, words[len(words)-1])
		}
	}
	f.readModules(root)
	f.readCgroups(text)
	f.Seccomp = strings.Contains(text("proc/self/status"), "\nSeccomp:") && text("proc/sys/kernel/seccomp/actions_avail") != ""
	f.AppArmor = strings.HasPrefix(text("sys/module/apparmor/parameters/enabled"), "Y")
	f.SELinux = text("sys/fs/selinux/enforce") != ""
	f.UserNamespaces = number("proc/sys/user/max_user_namespaces")
	f.Swap = swapSize(text("proc/swaps"))
	f.Memory = memoryOf(text("proc/meminfo"))
	f.CPUs = strings.Count("\n"+text("proc/cpuinfo"), "\nprocessor")
	f.InotifyInstances = number("proc/sys/fs/inotify/max_user_instances")
	f.InotifyWatches = number("proc/sys/fs/inotify/max_user_watches")
}

func (f *Facts) readModules(root fs.FS) {
	entries, _ := fs.ReadDir(root, "sys/module")
	for _, e := range entries {
		f.Loaded = append(f.Loaded, e.Name())
	}
	dir := path.Join("lib/modules", f.Release)
	for _, list := range []struct {
		file string
		to   *[]string
	}{{"modules.builtin", &f.Loaded}, {"modules.dep", &f.Loadable}} {
		data, _ := fs.ReadFile(root, path.Join(dir, list.file))
		*list.to = append(*list.to, moduleNames(string(data))...)
	}
	for _, file := range []string{"proc/config.gz", path.Join("boot", "config-"+f.Release), path.Join(dir, "config")} {
		data, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		if f.Options = options(data); f.Options != nil {
			return
		}
	}
}

// moduleNames reads the names from a list of paths such as "kernel/net/bridge/bridge.ko.xz: needs.ko".
func moduleNames(text string) (out []string) {
	for line := range strings.Lines(text) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, _, isModule := strings.Cut(path.Base(file), ".ko")
		if isModule {
			out = append(out, strings.ReplaceAll(name, "-", "_"))
		}
	}
	return out
}

// mostConfig limits the size of a kernel's configuration.
const mostConfig = 4 << 20

// options parses the configuration of a kernel, compressed or not.
func options(data []byte) map[string]string {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil
		}
		if data, err = io.ReadAll(io.LimitReader(r, mostConfig)); err != nil {
			return nil
		}
	}
	out := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && strings.HasPrefix(name, "CONFIG_") {
			out[name] = value
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// readCgroups determines the cgroup version and the controllers. If both versions are mounted, the one with the memory
// controller counts.
func (f *Facts) readCgroups(text func(string) string) {
	var one []string
	for line := range strings.Lines(text("proc/self/mountinfo")) {
		_, tail, _ := strings.Cut(line, " - ")
		words := strings.Fields(tail)
		if len(words) < 3 || words[0] != "cgroup" {
			continue
		}
		for o := range strings.SplitSeq(words[2], ",") {
			if slices.Contains([]string{"cpu", "cpuset", "memory", "pids", "cpuacct", "blkio", "devices", "freezer", "hugetlb"}, o) &&
				!slices.Contains(one, o) {
				one = append(one, o)
			}
		}
	}
	two := strings.Fields(text("sys/fs/cgroup/cgroup.controllers"))
	switch {
	case len(two) > 0 && !slices.Contains(one, "memory"):
		f.CgroupVersion, f.Controllers = 2, two
	case len(one) > 0:
		f.CgroupVersion, f.Controllers = 1, one
	}
	slices.Sort(f.Controllers)
}

// effective returns the effective capabilities of this process.
func effective(status string) uint64 {
	_, after, _ := strings.Cut(status, "\nCapEff:")
	line, _, _ := strings.Cut(after, "\n")
	set, _ := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return set
}

func swapSize(text string) (sum int64) {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) >= 3 {
			n, _ := strconv.ParseInt(words[2], 10, 64) // the heading has no number
			sum += n << 10
		}
	}
	return sum
}

func memoryOf(text string) int64 {
	words := strings.Fields(text)
	if len(words) < 2 || words[0] != "MemTotal:" {
		return 0
	}
	n, _ := strconv.ParseInt(words[1], 10, 64)
	return n << 10
}
