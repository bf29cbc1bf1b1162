package preflight

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
)

// Port is a TCP port that proa listens on.
type Port struct {
	// Address is where proa listens: a host, which may be empty for all addresses of the machine, and the port.
	Address string `json:"address"`
	Purpose string `json:"for"`
	// Flag is the flag that sets another one.
	Flag string `json:"flag"`
	// Replaceable says that any other port is used if this one is not available.
	Replaceable bool `json:"replaceable,omitempty"`
	// Own says that the running cluster listens there already.
	Own bool `json:"own,omitempty"`
	// Problem is why the port is not available; empty if it is.
	Problem string `json:"problem,omitempty"`
}

func port(p Port) Row {
	name := "port " + p.Address
	_, number, err := net.SplitHostPort(p.Address)
	if host, _, _ := net.SplitHostPort(p.Address); host == "" && err == nil {
		name = "port " + number
	}
	other := fmt.Sprintf("stop what listens there (ss -ltnp 'sport = :%s'), or choose another port with %s", number, p.Flag)
	switch {
	case p.Own:
		return ok(name, "in use, and the cluster runs")
	case p.Problem == "":
		return ok(name, "free for the "+p.Purpose)
	case p.Replaceable:
		return note(name, p.Problem+": the "+p.Purpose+" takes any other one", other)
	}
	return missing(name, p.Problem+": the "+p.Purpose+" cannot listen there", other)
}

// try checks whether the address is available, by listening there for a moment.
func (p *Port) try() {
	l, err := net.Listen("tcp", p.Address)
	switch {
	case err == nil:
		_ = l.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		p.Problem = "somebody listens on it already"
	default:
		p.Problem = err.Error()
	}
}

// Part is a program that a node runs beside proa.
type Part struct {
	Name string `json:"name"`
	// Path is where it was found; empty if it was not.
	Path string `json:"path"`
}

func part(f Facts, p Part) Row {
	if p.Path != "" {
		return ok(p.Name, p.Path)
	}
	return missing(p.Name, "it is not in "+f.BinDir,
		fmt.Sprintf("put it beside proa; in a source tree \"make build\" makes %s", filepath.Join("bin", p.Name)))
}

const (
	gibibyte = 1 << 30
	mebibyte = 1 << 20
)

func disk(f Facts) Row {
	says := fmt.Sprintf("%.1f of %.1f GiB free at %s", float64(f.DiskFree)/gibibyte, float64(f.DiskSize)/gibibyte, f.DataDir)
	const do = "free some space, or choose a --data-dir on another disk"
	switch {
	case f.DiskSize == 0:
		return note("disk", "it cannot be told how much is free at "+f.DataDir, "")
	case f.DiskFree < gibibyte:
		return missing("disk", says, do)
	case float64(f.DiskFree) < min(0.15*float64(f.DiskSize), 15*gibibyte):
		// From here on a node deletes unused images, and soon evicts Pods.
		return note("disk", says+", less than 15% and 15 GiB: Pods may be evicted", do)
	}
	return ok("disk", says)
}

func memory(f Facts) Row {
	says := fmt.Sprintf("%.1f GiB, %d CPUs", float64(f.Memory)/gibibyte, f.CPUs)
	if f.Memory > 0 && f.Memory < 512*mebibyte {
		return note("memory", says, "give the host 512 MiB or more")
	}
	return ok("memory", says)
}

func swap(f Facts) Row {
	if f.Swap == 0 {
		return ok("swap", "none")
	}
	return note("swap", fmt.Sprintf("%.1f GiB: memory limits of Pods do not bound it", float64(f.Swap)/gibibyte),
		"swapoff -a, if Pods shall not be slowed down by it")
}

// What a node with many Pods needs.
const (
	wantInstances = 512
	wantWatches   = 65536
	wantFiles     = 65536
)

func inotify(f Facts) Row {
	says := fmt.Sprintf("%d instances, %d watches for each user", f.InotifyInstances, f.InotifyWatches)
	if f.InotifyInstances < wantInstances || f.InotifyWatches < wantWatches {
		return note("inotify", says+": Pods that watch files may fail", fmt.Sprintf("sysctl -w fs.inotify.max_user_instances=%d fs.inotify.max_user_watches=%d", max(wantInstances, f.InotifyInstances), max(wantWatches, f.InotifyWatches)))
	}
	return ok("inotify", says)
}

func files(f Facts) Row {
	says := fmt.Sprintf("a process may open %d", f.OpenFiles)
	if f.OpenFiles < wantFiles {
		return note("open files", says, fmt.Sprintf("raise the hard limit of open files to %d or more", wantFiles))
	}
	return ok("open files", says)
}

func clock(f Facts) Row {
	if f.ClockSynchronized {
		return ok("clock", "synchronized")
	}
	return note("clock", "nothing keeps it right: certificates and tokens of other machines may seem expired", "run chrony, systemd-timesyncd or the like, if there is more than one machine")
}
