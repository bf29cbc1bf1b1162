package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	proa "proa.dev/run"
)

func kubectlCommand() Command {
	return Command{
		Name: "kubectl", Args: "ARGS…", Short: "run kubectl against the cluster", Raw: true,
		Long: `
Runs the kubectl that lies beside proa, or else the one in PATH, as the administrator of the cluster, whatever KUBECONFIG in the
environment says. All arguments are kubectl's; only --data-dir DIR, if it comes first, chooses the cluster. With a --kubeconfig
among the arguments kubectl uses that instead.`,
		Setup: func(*flag.FlagSet) func(context.Context, *Env, []string) error {
			return func(_ context.Context, _ *Env, args []string) error { return kubectl(args) }
		},
	}
}

func kubectl(args []string) error {
	dir, given, args := takeDataDir(args)
	c, err := clusterAt(dir)
	if err != nil {
		return err
	}
	there := c.exists()
	if there == nil && !isThere(c.kubeconfig()) {
		there = fmt.Errorf("the cluster in %s has not been started yet; \"proa up%s\" starts it", c.dir, c.flags())
	}
	if there != nil && !offline(args) && !namesKubeconfig(args) {
		return there
	}
	bin, err := findKubectl(c, there == nil || !given)
	if err != nil {
		return err
	}
	environ := append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "KUBECONFIG=") }), "KUBECONFIG="+c.kubeconfig())
	//nolint:gosec // G204: to run kubectl as the user asks is what this command is for
	if err := syscall.Exec(bin, append([]string{"kubectl"}, args...), environ); err != nil {
		return fmt.Errorf("run %s: %w", bin, err)
	}
	return nil
}

// takeDataDir takes --data-dir from the front of kubectl's arguments. The folder is empty where its path is missing.
func takeDataDir(args []string) (dir string, given bool, rest []string) {
	if len(args) == 0 {
		return proa.DefaultDataDir(), false, args
	}
	name, value, hasValue := strings.Cut(args[0], "=")
	switch {
	case name != "--data-dir" && name != "-data-dir":
		return proa.DefaultDataDir(), false, args
	case hasValue:
		return value, true, args[1:]
	case len(args) > 1:
		return args[1], true, args[2:]
	}
	return "", true, nil
}

// forKubectl are the arguments that are kubectl's own. What follows -- is for a container.
func forKubectl(args []string) []string {
	if at := slices.Index(args, "--"); at >= 0 {
		return args[:at]
	}
	return args
}

// namesKubeconfig tells whether the user has chosen a kubeconfig by a flag of kubectl.
func namesKubeconfig(args []string) bool {
	return slices.ContainsFunc(forKubectl(args), func(a string) bool { return a == "--kubeconfig" || strings.HasPrefix(a, "--kubeconfig=") })
}

// offline arguments make sense without a cluster.
func offline(args []string) bool {
	return len(args) == 0 || slices.Contains([]string{"help", "completion", "options", "kustomize"}, args[0]) ||
		slices.ContainsFunc(forKubectl(args), func(a string) bool { return a == "--help" || a == "-h" || a == "--client" })
}

// findKubectl looks beside this program and then in PATH. A release unpacks its kubectl into the data folder, unless that is one
// that the user may have mistyped.
func findKubectl(c cluster, unpack bool) (string, error) {
	programs := proa.OwnFolder
	if unpack {
		programs = func() (string, error) { return proa.Programs(c.dir) }
	}
	if folder, err := programs(); err == nil {
		own := filepath.Join(folder, "kubectl")
		if info, err := os.Stat(own); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return own, nil
		}
	}
	bin, err := exec.LookPath("kubectl")
	if err != nil {
		return "", errors.New("kubectl is neither beside proa nor in PATH; \"make build\" makes bin/kubectl, or install it by the means of your system")
	}
	return filepath.Abs(bin)
}
