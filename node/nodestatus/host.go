package nodestatus

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes a machine.
type Machine struct {
	CPUs         int
	Memory, Swap int64
	// HugePages is the number of pages by their size.
	HugePages                     map[int64]int64
	MachineID, SystemUUID, BootID string
	Kernel, OS                    string
}

// Host reads the properties of a machine. Its fields are for tests.
type Host struct {
	// Root replaces /.
	Root string
	// Addresses replaces net.InterfaceAddrs.
	Addresses func() ([]net.Addr, error)
}

// Has reports whether the machine has an address.
func (h *Host) Has(a netip.Addr) bool {
	list := h.Addresses
	if list == nil {
		list = net.InterfaceAddrs
	}
	all, err := list()
	return err == nil && slices.ContainsFunc(all, func(x net.Addr) bool {
		p, err := netip.ParsePrefix(x.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

// Machine reads the properties from the kernel. Those of which the machine has no file, or hides it, stay empty. That one
// cannot be read now is an error: such a machine does not have 0 bytes of memory.
func (h *Host) Machine() (Machine, error) {
	var failed error
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("/", h.Root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			failed = cmp.Or(failed, err)
		}
		return strings.TrimSpace(string(b))
	}
	memory := parseMemInfo(read("/proc/meminfo"))
	m := Machine{
		CPUs: cpus(read("/sys/devices/system/cpu/online")), Memory: memory["MemTotal"] << 10, Swap: memory["SwapTotal"] << 10,
		HugePages: map[int64]int64{}, BootID: read("/proc/sys/kernel/random/boot_id"), Kernel: read("/proc/sys/kernel/osrelease"),
		OS: distribution(read("/etc/os-release")),
	}
	if m.Memory == 0 {
		failed = cmp.Or(failed, errors.New("/proc/meminfo does not say how much memory the machine has"))
	}
	for _, name := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if m.MachineID == "" {
			m.MachineID = read(name)
		}
	}
	for _, name := range []string{"/sys/class/dmi/id/product_uuid", "/proc/device-tree/vm,uuid"} {
		if m.SystemUUID == "" {
			m.SystemUUID = strings.Trim(read(name), "\x00")
		}
	}
	if m.SystemUUID == "" {
		m.SystemUUID = m.MachineID
	}
	const hugePages = "/sys/kernel/mm/hugepages"
	folders, err := os.ReadDir(filepath.Join("/", h.Root, hugePages))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		failed = cmp.Or(failed, err)
	}
	for _, folder := range folders { // hugepages-2048kB
		size, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(folder.Name(), "hugepages-"), "kB"), 10, 64)
		pages, err2 := strconv.ParseInt(read(filepath.Join(hugePages, folder.Name(), "nr_hugepages")), 10, 64)
		if err == nil && err2 == nil {
			m.HugePages[size<<10] = pages
		}
	}
	if failed != nil {
		failed = fmt.Errorf("read the properties of the machine: %w", failed)
	}
	return m, failed
}

// Size returns the size of the file system of a folder.
func (h *Host) Size(folder string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		return 0, err
	}
	return int64(st.Blocks) * st.Bsize, nil
}

// parseMemInfo parses lines such as "MemTotal:  123 kB".
func parseMemInfo(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if len(words) == 0 {
			continue
		}
		if n, err := strconv.ParseInt(words[0], 10, 64); err == nil {
			out[name] = n
		}
	}
	return out
}

// cpus counts the CPUs of a list such as 0-3,8. For an invalid list it returns the number that this process may use.
func cpus(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			return runtime.NumCPU()
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil || b < a {
				return runtime.NumCPU()
			}
		}
		n += b - a + 1
	}
	return n
}

// distribution returns the name of the distribution from os-release.
func distribution(release string) string {
	lines := bufio.NewScanner(bytes.NewReader([]byte(release)))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return "Unknown"
}
