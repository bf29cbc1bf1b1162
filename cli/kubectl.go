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
Runs the kubectl that lies beside proa, or else the one in PATH, as the administrator of the cluster. All
arguments are kubectl's; only --data-dir DIR, if it comes first, chooses the cluster. A KUBECONFIG in the
environment or a --kubeconfig among the arguments is left alone.`,
		Setup: func(*flag.FlagSet) func(context.Context, *Env, []string) error {
			return func(_ context.Context, _ *Env, args []string) error { return kubectl(args) }
		},
	}
}

func kubectl(args []string) error {
	dir, given, args := takeDataDir(args)
	bin, err := findKubectl(dir)
	if err != nil {
		return err
	}
	c := cluster{dir}
	environ := os.Environ()
	if given || (os.Getenv("KUBECONFIG") == "" && !namesKubeconfig(args)) {
		if _, err := os.Stat(c.kubeconfig()); err != nil && !offline(args) {
			return fmt.Errorf("there is no cluster in %s; \"proa up%s\" starts one", c.dir, c.flags())
		}
		environ = append(slices.DeleteFunc(environ, func(e string) bool { return strings.HasPrefix(e, "KUBECONFIG=") }), "KUBECONFIG="+c.kubeconfig())
	}
	//nolint:gosec // G204: to run kubectl as the user asks is what this command is for
	if err := syscall.Exec(bin, append([]string{"kubectl"}, args...), environ); err != nil {
		return fmt.Errorf("run %s: %w", bin, err)
	}
	return nil
}

// takeDataDir takes --data-dir from the front of kubectl's arguments.
func takeDataDir(args []string) (dir string, given bool, rest []string) {
	if len(args) > 0 {
		name, value, hasValue := strings.Cut(args[0], "=")
		switch {
		case name != "--data-dir" && name != "-data-dir":
		case hasValue:
			return absoluteOr(value), true, args[1:]
		case len(args) > 1:
			return absoluteOr(args[1]), true, args[2:]
		}
	}
	return proa.DefaultDataDir(), false, args
}

func absoluteOr(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

func namesKubeconfig(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == "--kubeconfig" || strings.HasPrefix(a, "--kubeconfig=") })
}

// offline arguments make sense without a cluster.
func offline(args []string) bool {
	return len(args) == 0 || slices.Contains([]string{"help", "completion", "options", "kustomize"}, args[0]) ||
		slices.ContainsFunc(args, func(a string) bool { return a == "--help" || a == "-h" || a == "--client" })
}

// findKubectl looks beside this program, or where a release unpacks it, and then in PATH.
func findKubectl(dataDir string) (string, error) {
	if folder, err := proa.Programs(dataDir); err == nil {
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
