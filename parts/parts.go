// Package parts builds the programs that a node needs beside proa: containerd, its shim and runc, from modules that are
// pinned in folders of their own. Built programs are kept in a cache folder, under a name that changes with everything
// that goes into them, so that nothing is built twice. It is used when proa is built; proa itself does not import it.
package parts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Program says how one program is built from a module that pins it.
type Program struct {
	// Pins is the folder of the pinning module, relative to the root of the repository.
	Pins string
	// Module is the module whose version the program has.
	Module  string
	Package string
	Tags    string
	// LDFlags are for the linker; %s stands for the version.
	LDFlags string
	// Cgo says that the program is partly C.
	Cgo  bool
	Args []string
}

const (
	containerd = "github.com/containerd/containerd/v2"
	runc       = "github.com/opencontainers/runc"
	// common are the build tags of all programs: they leave out manual pages and tracing of RPCs, and use the name
	// services of Go.
	common = "urfave_cli_no_docs grpcnotrace static_build osusergo netgo"
)

// programs returns all parts that are built in the same way, by name. Storage drivers that nodes do not use are left
// out of containerd, and gRPC out of the shim, which halves the memory of each Pod's shim.
func programs() map[string]Program {
	return map[string]Program{
		"containerd": {
			Pins: "parts/pins/containerd", Module: containerd, Package: containerd + "/cmd/containerd",
			Tags: common + " no_btrfs no_devmapper no_zfs no_tracing", LDFlags: "-X " + containerd + "/version.Version=%s",
		},
		"containerd-shim-runc-v2": {
			Pins: "parts/pins/containerd", Module: containerd, Package: containerd + "/cmd/containerd-shim-runc-v2",
			Tags: common + " no_grpc", LDFlags: "-X " + containerd + "/version.Version=%s",
		},
	}
}

// Names returns the parts in the order in which they are built.
func Names() []string { return []string{"containerd", "containerd-shim-runc-v2", "runc"} }

// ErrMissing says that a part can be neither built nor found on this machine.
var ErrMissing = errors.New("part is missing")

// Build builds a part if it is not in the cache, and returns its path. Progress goes to say, a line for each program
// that has to be built.
func Build(ctx context.Context, say io.Writer, name string) (string, error) {
	if !slices.Contains(Names(), name) {
		return "", fmt.Errorf("there is no part %q; the parts are %q", name, Names())
	}
	b, err := newBuilder(say)
	if err != nil {
		return "", err
	}
	if name == "runc" {
		return b.runc(ctx)
	}
	return b.build(ctx, name, programs()[name])
}

// Install copies a part into a folder, unless the same bytes are there already.
func Install(from, folder string) error {
	to := filepath.Join(folder, filepath.Base(from))
	if haveSameContent(from, to) {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // G301: programs are for everybody
		return err
	}
	// A running program cannot be written to, but it can be replaced.
	partial := fmt.Sprintf("%s.partial.%d", to, os.Getpid())
	defer os.Remove(partial)
	if err := os.WriteFile(partial, data, 0o755); err != nil { //nolint:gosec // G306: programs are for everybody
		return err
	}
	return os.Rename(partial, to)
}

// haveSameContent compares two files by size and content.
func haveSameContent(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	if err != nil || x.Size() != y.Size() {
		return false
	}
	left, err := os.ReadFile(a)
	if err != nil {
		return false
	}
	right, err := os.ReadFile(b)
	return err == nil && slices.Equal(left, right)
}
