// Package preflight checks whether a host can run nodes: row by row what it has, what it lacks, and what to do about
// it. GatherFacts gathers facts and changes nothing; Rows is a pure function of them.
package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// State is the result of a row.
type State string

// The states of a row.
const (
	OK      State = "ok"
	Note    State = "note"    // nodes run, but something could be better
	Missing State = "missing" // nodes do not run
)

// Row is the result of one check.
type Row struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Finding is what was found.
	Finding string `json:"says,omitempty"`
	// Remedy is what the administrator can do about it; empty if all is well.
	Remedy string `json:"do,omitempty"`
}

// Ready reports whether nothing is missing.
func Ready(rows []Row) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool { return r.State == Missing })
}

// Rows checks a host.
func Rows(f Facts) []Row {
	rows := []Row{root(f), kernel(f), capabilities(f), overlay(f), controlGroups(f)}
	for _, m := range needed() {
		rows = append(rows, m.row(f))
	}
	rows = append(rows, seccomp(f), appArmor(f), userNamespaces(f))
	for _, p := range f.Ports {
		rows = append(rows, port(p))
	}
	for _, p := range f.Parts {
		rows = append(rows, part(f, p))
	}
	return append(rows, disk(f), memory(f), swap(f), inotify(f), files(f), clock(f))
}

func ok(name, says string) Row       { return Row{Name: name, State: OK, Finding: says} }
func note(name, says, do string) Row { return Row{Name: name, State: Note, Finding: says, Remedy: do} }
func missing(name, says, do string) Row {
	return Row{Name: name, State: Missing, Finding: says, Remedy: do}
}

func root(f Facts) Row {
	if f.Root {
		return ok("root", "this is root")
	}
	return missing("root", "this is not root, and containers need it", `run "sudo proa up", or "proa up --simulate 3", which needs no root and runs no containers`)
}

// The oldest supported kernel, and the oldest that supports everything.
var (
	oldestKernel = version{5, 10}
	bestKernel   = version{6, 3}
)

func kernel(f Facts) Row {
	v, known := parseVersion(f.Release)
	switch {
	case !known:
		return note("kernel", fmt.Sprintf("its version %q cannot be read", f.Release), "make sure that it is 5.10 or newer")
	case v.before(oldestKernel):
		return missing("kernel", f.Release+" is too old", "use Linux 5.10 or newer")
	case v.before(bestKernel):
		return note("kernel", f.Release, "use Linux 6.3 or newer if Pods shall have user namespaces")
	}
	return ok("kernel", f.Release)
}

// The numbers of capabilities.
const (
	capNetAdmin    = 12
	capSysAdmin    = 21
	capSysResource = 24
)

func capabilities(f Facts) Row {
	const name = "capabilities"
	has := func(bit uint) bool { return f.Capabilities&(1<<bit) != 0 }
	switch {
	case !has(capSysAdmin) || !has(capNetAdmin):
		return missing(name, "CAP_SYS_ADMIN or CAP_NET_ADMIN is not there",
			"run proa as root, outside of a container or in a privileged one")
	case !has(capSysResource):
		return note(name, "CAP_SYS_RESOURCE is not there: containers get no OOM score below that of proa", "give proa CAP_SYS_RESOURCE if the kernel shall spare important Pods first")
	}
	return ok(name, "CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_RESOURCE")
}

func overlay(f Facts) Row {
	const name = "overlayfs"
	has := slices.Contains(f.FileSystems, "overlay")
	if !has {
		has = module{names: []string{"overlay"}, option: "CONFIG_OVERLAY_FS"}.state(f) != absent
	}
	switch {
	case !has:
		return note(name, "the kernel has none: images are copied for each container", "use a kernel with CONFIG_OVERLAY_FS")
	case slices.Contains([]string{"overlay", "nfs", "nfs4", "fuse", "9p", "aufs"}, f.DataFS):
		return note(name, fmt.Sprintf("%s is on %s, on which overlayfs does not work: images are copied for each container", f.DataDir, f.DataFS), "choose a --data-dir on a local disk")
	}
	return ok(name, "")
}

func controlGroups(f Facts) Row {
	const name = "cgroups"
	var lack []string
	for _, c := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !slices.Contains(f.Controllers, c) {
			lack = append(lack, c)
		}
	}
	says := fmt.Sprintf("version %d with %s", f.CgroupVersion, strings.Join(f.Controllers, " "))
	switch {
	case f.CgroupVersion == 0:
		return missing(name, "none are mounted", "mount cgroup2 at /sys/fs/cgroup")
	case len(lack) > 0:
		return missing(name, says+"; there is no "+strings.Join(lack, ", "), "enable the controllers, on the kernel command line if need be: cgroup_enable=memory")
	case f.CgroupVersion == 1:
		return note(name, says, "boot with systemd.unified_cgroup_hierarchy=1: version 1 is going away, and Pods cannot be resized with it")
	}
	return ok(name, says)
}

func seccomp(f Facts) Row {
	if f.Seccomp {
		return ok("seccomp", "")
	}
	return note("seccomp", "the kernel cannot filter system calls: containers do not start with the runtime's seccomp profile, which is their default", "use a kernel with CONFIG_SECCOMP_FILTER")
}

func appArmor(f Facts) Row {
	switch {
	case f.AppArmor:
		return ok("AppArmor", "")
	case f.SELinux:
		return ok("AppArmor", "off; SELinux is on")
	}
	return note("AppArmor", "off: Pods that ask for a profile do not start", "boot with apparmor=1 if your Pods use profiles")
}

func userNamespaces(f Facts) Row {
	if f.UserNamespaces > 0 {
		return ok("user namespaces", "")
	}
	return note("user namespaces", "the kernel allows none: Pods with hostUsers: false do not start",
		"sysctl -w user.max_user_namespaces=65536")
}
