package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// CPU is a logical CPU of the kernel: a thread of a core.
type CPU struct{ ID, Core, Socket, Node int }

// Machine is the topology of a machine.
type Machine struct {
	CPUs []CPU
	// Memory is the memory and the huge pages of each NUMA node, in bytes.
	Memory map[int]map[corev1.ResourceName]int64
}

// Read reads the topology from /sys.
func Read() (*Machine, error) { return read(os.DirFS("/sys")) }

func read(sys fs.FS) (*Machine, error) {
	line := func(name string) (string, error) {
		b, err := fs.ReadFile(sys, name)
		return strings.TrimSpace(string(b)), err
	}
	online, err := line("devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("read the processors: %w", err)
	}
	ids, err := ParseSet(online)
	if err != nil {
		return nil, err
	}
	m := &Machine{Memory: map[int]map[corev1.ResourceName]int64{}}
	nodeOf, err := m.nodes(sys, line)
	if err != nil {
		return nil, err
	}
	for _, id := range ids.IDs() {
		c := CPU{ID: id, Core: id, Node: nodeOf[id]}
		for name, into := range map[string]*int{"core_id": &c.Core, "physical_package_id": &c.Socket} {
			text, err := line(fmt.Sprintf("devices/system/cpu/cpu%d/topology/%s", id, name))
			if n, wrong := strconv.Atoi(text); err == nil && wrong == nil && n >= 0 {
				*into = n
			}
		}
		m.CPUs = append(m.CPUs, c)
	}
	return m, nil
}

// nodes reads the NUMA nodes, and the node of each CPU. A machine without NUMA has one node.
func (m *Machine) nodes(sys fs.FS, line func(string) (string, error)) (map[int]int, error) {
	out := map[int]int{}
	folders, err := fs.Glob(sys, "devices/system/node/node[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		id, err := strconv.Atoi(strings.TrimPrefix(path.Base(folder), "node"))
		if err != nil {
			continue
		}
		text, err := line(folder + "/cpulist")
		if err != nil {
			return nil, fmt.Errorf("read the processors of a NUMA node: %w", err)
		}
		cpus, err := ParseSet(text)
		if err != nil {
			return nil, err
		}
		for cpu := range cpus {
			out[cpu] = id
		}
		m.Memory[id] = map[corev1.ResourceName]int64{}
		info, err := line(folder + "/meminfo")
		if err == nil {
			m.Memory[id][corev1.ResourceMemory] = total(info)
		}
		m.pages(sys, line, folder, id)
	}
	if len(m.Memory) == 0 {
		m.Memory[0] = map[corev1.ResourceName]int64{}
	}
	return out, nil
}

func (m *Machine) pages(sys fs.FS, line func(string) (string, error), folder string, id int) {
	sizes, _ := fs.Glob(sys, folder+"/hugepages/hugepages-*kB")
	for _, size := range sizes {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(path.Base(size), "hugepages-"), "kB"), 10, 64)
		text, err2 := line(size + "/nr_hugepages")
		n, err3 := strconv.ParseInt(text, 10, 64)
		if errors.Join(err, err2, err3) != nil {
			continue
		}
		name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(kb<<10, resource.BinarySI).String())
		m.Memory[id][name] = n * kb << 10
		m.Memory[id][corev1.ResourceMemory] -= n * kb << 10
	}
}

// total parses "Node 0 MemTotal: 123 kB".
func total(info string) int64 {
	for l := range strings.Lines(info) {
		words := strings.Fields(l)
		if len(words) >= 4 && words[2] == "MemTotal:" {
			if n, err := strconv.ParseInt(words[3], 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// Nodes returns the NUMA nodes, in order.
func (m *Machine) Nodes() []int {
	seen := map[int]bool{}
	for _, c := range m.CPUs {
		seen[c.Node] = true
	}
	for id := range m.Memory {
		seen[id] = true
	}
	var out []int
	for id := range seen {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// All returns all CPUs.
func (m *Machine) All() Set {
	s := Set{}
	for _, c := range m.CPUs {
		s[c.ID] = struct{}{}
	}
	return s
}

// In returns the CPUs of some NUMA nodes.
func (m *Machine) In(nodes Mask) Set {
	s := Set{}
	for _, c := range m.CPUs {
		if nodes.Has(c.Node) {
			s[c.ID] = struct{}{}
		}
	}
	return s
}

// Threads returns how many threads a core has.
func (m *Machine) Threads() int {
	cores := map[[2]int]bool{}
	for _, c := range m.CPUs {
		cores[[2]int{c.Socket, c.Core}] = true
	}
	if len(cores) == 0 {
		return 1
	}
	return max(1, len(m.CPUs)/len(cores))
}

// take chooses n CPUs that are near each other: whole sockets, whole NUMA nodes, whole cores, and then threads, each
// time from where the fewest are free, so that large free parts stay whole.
func (m *Machine) take(free Set, n int) (Set, error) {
	if len(free) < n {
		return nil, fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, len(free))
	}
	got := Set{}
	for _, part := range []func(CPU) [2]int{
		func(c CPU) [2]int { return [2]int{c.Socket, -1} },
		func(c CPU) [2]int { return [2]int{c.Node, -1} },
		func(c CPU) [2]int { return [2]int{c.Socket, c.Core} },
		func(c CPU) [2]int { return [2]int{c.ID, -1} },
	} {
		m.takeWhole(part, free, got, n)
	}
	return got, nil
}

// takeWhole moves parts that are completely free, and not larger than what is still needed, into got.
func (m *Machine) takeWhole(part func(CPU) [2]int, free, got Set, n int) {
	parts := map[[2]int][]CPU{}
	for _, c := range m.CPUs {
		parts[part(c)] = append(parts[part(c)], c)
	}
	var whole [][]CPU
	for _, cpus := range parts {
		if !slices.ContainsFunc(cpus, func(c CPU) bool { return !free.Has(c.ID) || got.Has(c.ID) }) {
			whole = append(whole, cpus)
		}
	}
	for len(whole) > 0 && len(got) < n {
		slices.SortFunc(whole, func(a, b []CPU) int { return m.prefer(a[0], b[0], free, got) })
		if n-len(got) < len(whole[0]) {
			return
		}
		for _, c := range whole[0] {
			got[c.ID] = struct{}{}
		}
		whole = whole[1:]
	}
}

// prefer compares two CPUs: CPUs on a core or node from which others were taken come first, then those where fewer are
// free, then the lower number.
func (m *Machine) prefer(a, b CPU, free, got Set) int {
	count := func(same func(CPU) bool, in Set) (n int) {
		for _, x := range m.CPUs {
			if same(x) && in.Has(x.ID) {
				n++
			}
		}
		return n
	}
	near := func(c CPU) (taken, left int) {
		core := func(x CPU) bool { return x.Socket == c.Socket && x.Core == c.Core }
		node := func(x CPU) bool { return x.Node == c.Node }
		return 1000*count(core, got) + count(node, got), 1000*count(node, free) + count(core, free)
	}
	aTaken, aLeft := near(a)
	bTaken, bLeft := near(b)
	return cmp.Or(cmp.Compare(bTaken, aTaken), cmp.Compare(aLeft, bLeft), cmp.Compare(a.ID, b.ID))
}
