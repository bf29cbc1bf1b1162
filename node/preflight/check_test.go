package preflight

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// goodHost returns the facts of a host that lacks nothing.
func goodHost() Facts {
	return Facts{
		Root: true, Release: "6.12.9-amd64", Capabilities: 1<<41 - 1, FileSystems: []string{"ext4", "overlay"},
		Options: map[string]string{"CONFIG_NF_TABLES": "y", "CONFIG_NFT_NAT": "y", "CONFIG_NF_CONNTRACK": "y", "CONFIG_VETH": "y",
			"CONFIG_BRIDGE": "y", "CONFIG_BRIDGE_NETFILTER": "y", "CONFIG_VXLAN": "y"},
		CgroupVersion: 2, Controllers: []string{"cpu", "cpuset", "io", "memory", "pids"}, Seccomp: true, AppArmor: true,
		UserNamespaces: 1000,
		Memory:         8 << 30, CPUs: 4, InotifyInstances: 1024, InotifyWatches: 1 << 20, OpenFiles: 1 << 20, ClockSynchronized: true,
		DataDir: "/var/lib/proa", DiskFree: 50 << 30, DiskSize: 100 << 30, BinDir: "/opt/proa",
		Parts: []Part{{"containerd", "/opt/proa/containerd"}},
		Ports: []Port{{Address: "127.0.0.1:6443", Purpose: "API server", Flag: "--listen"},
			{Address: ":10250", Purpose: "node agent", Flag: "--node-port", Replaceable: true}},
	}
}

// TestRows checks the findings and remedies for hosts that lack something.
func TestRows(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Facts)
	}{
		{"everything", func(*Facts) {}},
		{"no root", func(f *Facts) { f.Root, f.Capabilities = false, 0 }},
		{"old kernel", func(f *Facts) { f.Release = "4.19.0" }},
		{"older kernel", func(f *Facts) { f.Release = "5.15.0-91-generic" }},
		{"unknown kernel version", func(f *Facts) { f.Release = "latest" }},
		{"no CAP_SYS_RESOURCE", func(f *Facts) { f.Capabilities &^= 1 << capSysResource }},
		{"no overlayfs", func(f *Facts) { f.FileSystems = nil }},
		{"overlayfs as a module", func(f *Facts) { f.FileSystems, f.Loadable = nil, []string{"overlay"} }},
		{"data folder in a container", func(f *Facts) { f.DataFS = "overlay" }},
		{"no cgroups", func(f *Facts) { f.CgroupVersion, f.Controllers = 0, nil }},
		{"cgroups without memory", func(f *Facts) { f.Controllers = []string{"cpu", "cpuset", "pids"} }},
		{"cgroups 1", func(f *Facts) { f.CgroupVersion = 1 }},
		{"modules", func(f *Facts) {
			f.Options, f.Loadable, f.Loaded = nil, []string{"nf_tables", "nft_nat", "veth", "br_netfilter"}, []string{"bridge",
				"nf_conntrack"}
		}},
		{"modules that are not installed", func(f *Facts) { f.Options["CONFIG_VETH"] = "m" }},
		{"no kernel configuration", func(f *Facts) { f.Options = nil }},
		{"no security", func(f *Facts) { f.Seccomp, f.AppArmor, f.UserNamespaces = false, false, 0 }},
		{"SELinux", func(f *Facts) { f.AppArmor, f.SELinux = false, true }},
		{"port taken", func(f *Facts) { f.Ports[0].Problem = "somebody listens on it already" }},
		{"port taken by the cluster", func(f *Facts) { f.Ports[0].Own = true }},
		{"port of the agent taken", func(f *Facts) { f.Ports[1].Problem = "somebody listens on it already" }},
		{"no containerd", func(f *Facts) { f.Parts[0].Path = "" }},
		{"full disk", func(f *Facts) { f.DiskFree = 1 << 20 }},
		{"nearly full disk", func(f *Facts) { f.DiskFree = 10 << 30 }},
		{"unknown disk", func(f *Facts) { f.DiskSize = 0 }},
		{"small", func(f *Facts) { f.Memory, f.CPUs, f.Swap = 256<<20, 1, 1<<30 }},
		{"low limits", func(f *Facts) { f.InotifyInstances, f.OpenFiles = 128, 20000 }},
		{"wrong clock", func(f *Facts) { f.ClockSynchronized = false }},
	}
	var b strings.Builder
	for _, c := range cases {
		f := goodHost()
		c.change(&f)
		rows := Rows(f)
		fmt.Fprintf(&b, "== %s: ready %t\n", c.name, Ready(rows))
		for _, r := range rows {
			if r.State != OK || strings.Contains(r.Finding, "module") || strings.Contains(r.Finding, "in use") ||
				strings.Contains(r.Finding, "off") {
				fmt.Fprintf(&b, "%s %s: %s\n", r.State, r.Name, r.Finding)
			}
			if r.Remedy != "" {
				fmt.Fprintf(&b, "  → %s\n", r.Remedy)
			}
			if r.State != OK && r.Remedy == "" && r.Name != "disk" {
				t.Errorf("%s: %s has no remedy", c.name, r.Name)
			}
		}
	}
	const file = "testdata/rows.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s differs; -update writes it\n%s", file, b.String())
	}
}

func TestReadFacts(t *testing.T) {
	var config bytes.Buffer
	w := gzip.NewWriter(&config)
	fmt.Fprintln(w, "# Linux\nCONFIG_VETH=y\n# CONFIG_VXLAN is not set\nCONFIG_BRIDGE=m")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"proc/sys/kernel/osrelease":                  "6.1.0-9\n",
		"proc/self/status":                           "Name:\tx\nCapEff:\t0000000000201000\nSeccomp:\t0\n",
		"proc/sys/kernel/seccomp/actions_avail":      "kill log allow\n",
		"proc/filesystems":                           "nodev\tsysfs\n\text4\nnodev\toverlay\n",
		"proc/config.gz":                             config.String(),
		"proc/self/mountinfo":                        "1 2 0:3 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/cgroup.controllers":           "cpuset cpu memory pids\n",
		"sys/module/bridge/refcnt":                   "1\n",
		"sys/module/apparmor/parameters/enabled":     "Y\n",
		"lib/modules/6.1.0-9/modules.builtin":        "kernel/fs/overlayfs/overlay.ko\n",
		"lib/modules/6.1.0-9/modules.dep":            "kernel/net/br-netfilter.ko.xz: kernel/net/bridge.ko.xz\n",
		"proc/swaps":                                 "Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2\n",
		"proc/meminfo":                               "MemTotal:        2048 kB\n",
		"proc/cpuinfo":                               "processor\t: 0\nmodel\t: x\n\nprocessor\t: 1\n",
		"proc/sys/user/max_user_namespaces":          "7\n",
		"proc/sys/fs/inotify/max_user_instances":     "128\n",
		"proc/sys/fs/inotify/max_user_watches":       "9\n",
		"lib/modules/another-kernel/modules.builtin": "kernel/net/veth.ko\n",
	}
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	var got Facts
	got.read(root)
	want := Facts{
		Release: "6.1.0-9", Capabilities: 0x201000, FileSystems: []string{"sysfs", "ext4", "overlay"},
		Loaded: []string{"apparmor", "bridge", "overlay"}, Loadable: []string{"br_netfilter"},
		Options:       map[string]string{"CONFIG_VETH": "y", "CONFIG_BRIDGE": "m"},
		CgroupVersion: 2, Controllers: []string{"cpu", "cpuset", "memory", "pids"}, Seccomp: true, AppArmor: true, UserNamespaces: 7,
		Swap: 1 << 20, Memory: 2 << 20, CPUs: 2, InotifyInstances: 128, InotifyWatches: 9,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v\nwant %+v", got, want)
	}

	// Version 1 beside an empty version 2.
	got = Facts{}
	root["sys/fs/cgroup/cgroup.controllers"] = &fstest.MapFile{}
	root["proc/self/mountinfo"] = &fstest.MapFile{Data: []byte("1 2 0:3 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n1 2 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n")}
	got.read(root)
	if got.CgroupVersion != 1 || !reflect.DeepEqual(got.Controllers, []string{"cpu", "cpuacct", "memory"}) {
		t.Errorf("cgroups version %d with %q", got.CgroupVersion, got.Controllers)
	}

	// A host without any of these files is not ready, and causes no error.
	got = Facts{}
	got.read(fstest.MapFS{})
	if Ready(Rows(got)) {
		t.Error("an unknown host is ready")
	}
}

func TestGatherFactsChangesNothing(t *testing.T) {
	dir := t.TempDir()
	f := GatherFacts(Targets{DataDir: dir + "/not/there", BinDir: dir, Parts: []string{"containerd"}})
	if f.DiskSize == 0 || f.Release == "" || f.Parts[0].Path != "" {
		t.Errorf("facts %+v", f)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("created: %v, %v", left, err)
	}
}

func FuzzFacts(f *testing.F) {
	f.Add("1 2 0:3 / /x rw - cgroup cgroup rw,memory\n", "MemTotal: 1 kB\n", "CONFIG_A=y\n", "6.1.0")
	f.Fuzz(func(_ *testing.T, mounts, memory, config, release string) {
		root := fstest.MapFS{
			"proc/self/mountinfo": {Data: []byte(mounts)}, "proc/config.gz": {Data: []byte(config)},
			"proc/sys/kernel/osrelease": {Data: []byte(release)}, "proc/swaps": {Data: []byte(mounts)},
			"proc/meminfo": {Data: []byte(memory)}, "proc/self/status": {Data: []byte(config)},
		}
		var facts Facts
		facts.read(root)
		_ = Rows(facts)
	})
}
