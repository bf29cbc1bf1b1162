package parts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// static and dynamic are the two ways to link runc. The static one runs everywhere; if the C library cannot be linked
// statically, the other is used.
const (
	static  = "-linkmode external -extldflags -static-pie"
	dynamic = ""
)

// wayOfRunc is one way to get a runc.
type wayOfRunc int

const (
	wayBuild       wayOfRunc = iota // with seccomp
	wayInstall                      // the packages that are missing, then build
	wayHost                         // take the one of the host
	wayUnsupported                  // build without seccomp
	wayNone
)

// tools are what this machine has for building C.
type tools struct {
	compiler bool // a C compiler
	seccomp  bool // the headers of libseccomp
	apt      bool // packages can be installed: root, and apt-get
	host     string
}

// way chooses the best way: first those that give the pinned version with all its features, then those that give all
// features, then those that give any runc at all.
func (t tools) way() wayOfRunc {
	switch {
	case t.compiler && t.seccomp:
		return wayBuild
	case t.apt:
		return wayInstall
	case t.host != "":
		return wayHost
	case t.compiler:
		return wayUnsupported
	}
	return wayNone
}

func findTools(ctx context.Context) tools {
	t := tools{compiler: found("cc") || found("gcc"), host: hostRunc()}
	t.seccomp = found("pkg-config") && exec.CommandContext(ctx, "pkg-config", "--exists", "libseccomp").Run() == nil
	t.apt = os.Geteuid() == 0 && found("apt-get")
	return t
}

func found(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

func hostRunc() string {
	path, err := exec.LookPath("runc")
	if err != nil {
		return ""
	}
	return path
}

// runc builds runc, which is partly C and filters system calls with a C library.
func (b *builder) runc(ctx context.Context) (string, error) {
	t := findTools(ctx)
	way := t.way()
	if way == wayInstall {
		if err := b.installLibraries(ctx); err != nil {
			fmt.Fprintf(b.say, "installing what runc is built with: %v\n", err)
		}
		t = findTools(ctx)
		t.apt = false
		way = t.way()
	}
	switch way {
	case wayBuild:
		out, err := b.build(ctx, "runc", runcProgram("seccomp ", static))
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		fmt.Fprintf(b.say, "runc cannot be linked statically here, so it needs the C libraries of this machine: %v\n", err)
		return b.build(ctx, "runc", runcProgram("seccomp ", dynamic))
	case wayHost:
		fmt.Fprintf(b.say, "NOTICE: taking %s of this machine, because runc is built with a C compiler, pkg-config and libseccomp-dev\n", t.host)
		return t.host, nil
	case wayUnsupported:
		fmt.Fprintln(b.say, "NOTICE: building runc WITHOUT seccomp: Pods that ask for a seccomp profile will not start. Install libseccomp-dev and pkg-config and build again")
		return b.build(ctx, "runc", runcProgram("", dynamic))
	default:
		return "", fmt.Errorf("%w: runc; it is built with a C compiler, pkg-config and libseccomp-dev: install them and build again, or install runc", ErrMissing)
	}
}

func runcProgram(tags, link string) Program {
	p := Program{Pins: "parts/pins/runc", Module: runc, Package: runc, Tags: tags + "urfave_cli_no_docs netgo osusergo", LDFlags: link,
		Cgo: true}
	if link != "" {
		p.Args = []string{"-buildmode=pie"}
	}
	return p
}

// installLibraries installs what runc is built with, by the package manager of Debian and its derivatives.
func (b *builder) installLibraries(ctx context.Context) error {
	fmt.Fprintln(b.say, "installing gcc, libc6-dev, libseccomp-dev and pkg-config, which runc is built with")
	for _, args := range []string{"update -qq", "install -y -qq --no-install-recommends gcc libc6-dev libseccomp-dev pkg-config"} {
		cmd := exec.CommandContext(ctx, "apt-get", strings.Fields(args)...) //nolint:gosec // G204: the arguments are the two lines above
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args, err, tail(text, 1000))
		}
	}
	return nil
}
