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

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/run/datafolder"
)

func kubectlCommand() command.Command {
	return command.Command{
		Name: "kubectl", Args: "ARGS…", Short: "run kubectl against the cluster", Raw: true,
		Long: `
Runs the kubectl that lies beside proa, or else the one in PATH, as the administrator of the cluster, whatever KUBECONFIG in the
environment says. All arguments are kubectl's, except --data-dir DIR anywhere before "--": it chooses the cluster, and neither
kubectl nor a plugin of kubectl sees it. With a --kubeconfig among the arguments kubectl uses that instead.`,
		Setup: func(*flag.FlagSet) func(context.Context, *command.Env, []string) error {
			return func(_ context.Context, _ *command.Env, args []string) error { return kubectl(args) }
		},
	}
}

func kubectl(args []string) error {
	dir, given, args := takeDataDir(args)
	c, err := localcluster.ClusterAt(dir)
	if err != nil {
		return err
	}
	there := hasKubeconfig(c)
	if there != nil && (given && c.Exists() != nil || !needsNoCluster(args) && !namesKubeconfig(args)) {
		return there
	}
	bin, err := findKubectl(c, there == nil || !given)
	if err != nil {
		return err
	}
	environ := append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "KUBECONFIG=") }),
		"KUBECONFIG="+c.Kubeconfig())
	//nolint:gosec // G204: to run kubectl as the user asks is what this command is for
	if err := syscall.Exec(bin, append([]string{"kubectl"}, args...), environ); err != nil {
		return fmt.Errorf("run %s: %w", bin, err)
	}
	return nil
}

// hasKubeconfig returns why there is no kubeconfig of the cluster; nil if there is one.
func hasKubeconfig(c localcluster.Cluster) error {
	if err := c.Exists(); err != nil {
		return err
	}
	if !command.FileExists(c.Kubeconfig()) {
		return fmt.Errorf("the cluster in %s has not been started yet; \"proa up%s\" starts it", c.Dir, c.CommandFlags())
	}
	return nil
}

// takeDataDir removes --data-dir from kubectl's arguments. The folder is empty if its path is missing.
func takeDataDir(args []string) (dir string, given bool, rest []string) {
	dir = datafolder.Default()
	for i := 0; i < len(args); i++ {
		name, value, hasValue := strings.Cut(args[i], "=")
		switch {
		case args[i] == "--":
			return dir, given, append(rest, args[i:]...)
		case name != "--data-dir" && name != "-data-dir":
			rest = append(rest, args[i])
			continue
		case !hasValue && i+1 < len(args):
			i++
			value = args[i]
		}
		dir, given = value, true
	}
	return dir, given, rest
}

// forKubectl returns the arguments of kubectl itself. Those after -- are for a container.
func forKubectl(args []string) []string {
	if at := slices.Index(args, "--"); at >= 0 {
		return args[:at]
	}
	return args
}

// namesKubeconfig tells whether the user has chosen a kubeconfig by a flag of kubectl.
func namesKubeconfig(args []string) bool {
	return slices.ContainsFunc(forKubectl(args),
		func(a string) bool { return a == "--kubeconfig" || strings.HasPrefix(a, "--kubeconfig=") })
}

// needsNoCluster tells whether kubectl needs no cluster for these arguments.
func needsNoCluster(args []string) bool {
	return len(args) == 0 || slices.Contains([]string{"help", "completion", "options", "kustomize"}, args[0]) ||
		slices.ContainsFunc(forKubectl(args), func(a string) bool { return a == "--help" || a == "-h" || a == "--client" })
}

// findKubectl looks for kubectl beside this program and then in PATH. A release unpacks its kubectl into the data
// folder, unless the user may have mistyped that.
func findKubectl(c localcluster.Cluster, unpack bool) (string, error) {
	programs := datafolder.OwnFolder
	if unpack {
		programs = func() (string, error) { return datafolder.Programs(c.Dir) }
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
