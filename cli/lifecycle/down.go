package lifecycle

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/cli/userkubeconfig"
	"proa.dev/kinds/lib/duration"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine/teardown"
	"proa.dev/run/recordfile"
)

// DownCommand returns the command "proa down".
func DownCommand() command.Command {
	return command.Command{
		Name: "down", Short: "stop the cluster",
		Long: `
Stops the cluster of the data folder, with the containers of its nodes, and removes its context from your kubeconfig. What the
cluster keeps stays in the folder, and "proa up" goes on from there; --purge removes it for good, with every container,
mount, interface and rule that the nodes have created.

Pods are stopped first, while the API still runs: preStop hooks run, every Pod has its grace period, sidecars end last. They
start again with the next "proa up". A Pod whose restartPolicy is Never cannot; it fails, and a Job makes another one.
--grace-period and --now give Pods less time. Ctrl-C while Pods stop leaves the cluster running, and they start again.

--keep-containers leaves the containers running: the next "proa up", with a newer proa perhaps, finds them as they are.

A cluster that "proa install" has made a service is stopped with that service: "systemctl start" starts it again.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			which := localcluster.AnyDataDirFlag(fs)
			purge := fs.Bool("purge", false, "remove the data folder too, with everything the cluster kept")
			keep := fs.Bool("keep-containers", false, "leave the containers of the nodes running")
			grace := fs.Int("grace-period", -1, "give Pods at most `SECONDS` to end; by default each has its own grace period, up to 10 minutes")
			now := fs.Bool("now", false, "give Pods a second to end, as --grace-period=1 does")
			return func(ctx context.Context, env *command.Env, args []string) error {
				if *keep && *purge {
					return errors.New("--purge removes containers and --keep-containers keeps them; choose one")
				}
				if err := command.NoArguments("down", args); err != nil {
					return err
				}
				limit, err := stopLimit(*grace, *now)
				if err != nil {
					return err
				}
				c, err := which()
				if err != nil {
					return err
				}
				return down(ctx, env, c, downOptions{purge: *purge, keepContainers: *keep, limit: limit, systemd: machineSystemd()})
			}
		},
	}
}

// downOptions are the flags of "proa down".
type downOptions struct {
	purge, keepContainers bool
	// limit is the most time that a Pod has to end.
	limit   time.Duration
	systemd systemd
}

// longestStop is how long Pods may take to end by default.
const longestStop = 10 * time.Minute

// stopLimit returns the most time that Pods have, by the flags --grace-period and --now.
func stopLimit(seconds int, now bool) (time.Duration, error) {
	switch {
	case seconds >= 0 && now:
		return 0, errors.New("--now means --grace-period=1, and --grace-period gives another number; choose one")
	case seconds < -1:
		return 0, fmt.Errorf("--grace-period %d is not a number of seconds", seconds)
	case seconds >= 0:
		return duration.FromSeconds(int64(seconds)), nil
	case now:
		return time.Second, nil
	}
	return longestStop, nil
}

func down(ctx context.Context, env *command.Env, c localcluster.Cluster, o downOptions) error {
	if o.purge {
		if err := checkDataFolder(c); err != nil {
			return err
		}
	}
	if err := c.Exists(); err != nil {
		return err
	}
	pid, err := c.ServerPID()
	if err != nil {
		return err
	}
	server := serverToStop{begin: time.Now()}
	if unit := o.systemd.serviceOfCluster(c.Dir, pid); unit != "" && o.purge {
		return fmt.Errorf("the cluster in %s is the service %s, which systemd would start again; use \"proa uninstall\", and then this command", c.Dir, unit)
	}
	if !o.keepContainers {
		stopping, err := stopPods(ctx, env, c, o)
		if err != nil {
			return err
		}
		defer stopping.Close()
		server.stopped = stopping.Stopped
	}
	// The server may have ended while Pods stopped, which takes minutes.
	if server.pid, err = c.ServerPID(); err != nil {
		return err
	}
	server.service = o.systemd.serviceOfCluster(c.Dir, server.pid)
	err = takeDown(ctx, env, c, o, server)
	if err != nil && ctx.Err() != nil {
		return leftByDown(env, c, o)
	}
	return err
}

// serverToStop is the server that "proa down" stops.
type serverToStop struct {
	pid     int       // zero if none runs
	service string    // of systemd that the cluster is; empty if it is none
	begin   time.Time // when the command began to stop the cluster
	// stopped has the data folders of the nodes whose agents have stopped their Pods.
	stopped map[string]bool
}

// takeDown ends the server, the agents and, unless they are to be kept, the containers. With --purge it removes
// everything.
func takeDown(ctx context.Context, env *command.Env, c localcluster.Cluster, o downOptions, server serverToStop) error {
	if server.pid == 0 {
		fmt.Fprintf(env.Out, "The cluster in %s is not running.\n", c.Dir)
	}
	if err := stopServer(ctx, env, c, o, server); err != nil {
		return err
	}
	agents, err := teardown.StopAgents(ctx, c.Dir)
	if err != nil {
		return err
	}
	if agents > 0 && server.pid == 0 {
		fmt.Fprintf(env.Out, "Stopped %s that a server had left\n", command.Count(agents, "agent"))
	}
	if err := removeContext(env, c); err != nil {
		fmt.Fprintf(env.Err, "Your kubeconfig still has its context: %v\n", err)
	}
	if !o.purge && !o.keepContainers {
		if err := haltNodes(ctx, env, c, o.limit, server.stopped); err != nil {
			return err
		}
	}
	if server.pid != 0 {
		showStopped(env, c, server.begin)
	}
	if server.service != "" {
		fmt.Fprintf(env.Out, "It is the service %[1]s: \"systemctl start %[1]s\" starts it again, and so does the next start of the machine.\n", server.service)
	}
	if !o.purge {
		return nil
	}
	if err := teardown.PurgeNodes(ctx, c.Dir, warnings(env)); err != nil {
		return fmt.Errorf("remove what the nodes have created: %w", err)
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return fmt.Errorf("remove the data folder: %w", err)
	}
	if err := datafolder.Forget(c.Dir); err != nil {
		fmt.Fprintf(env.Err, "\"proa list\" may go on showing this cluster: %v\n", err)
	}
	fmt.Fprintf(env.Out, "Removed %s\n", c.Dir)
	return nil
}

// stopServer ends the server, if it runs: by systemd if it is a service, which would start it again otherwise, perhaps in a moment.
func stopServer(ctx context.Context, env *command.Env, c localcluster.Cluster, o downOptions, server serverToStop) error {
	if server.service != "" {
		if err := o.systemd.systemctl(ctx, "stop", server.service); err != nil {
			return err
		}
	}
	if pid, err := c.ServerPID(); err != nil || pid != server.pid || pid == 0 {
		return err
	}
	return stop(ctx, env, c, server.pid)
}

// haltNodes ends the containers and container runtimes of nodes whose agents have ended. stopped has the data folders of
// the nodes whose agents have stopped their Pods; on others, limit is the most time that a Pod has.
func haltNodes(ctx context.Context, env *command.Env, c localcluster.Cluster, limit time.Duration, stopped map[string]bool) error {
	ended, err := teardown.HaltNodes(ctx, c.Dir, limit, stopped, warnings(env))
	if ended > 0 {
		fmt.Fprintf(env.Out, "Containers ended: %d\n", ended)
	}
	return err
}

// warnings returns a logger that shows warnings to the user.
func warnings(env *command.Env) *slog.Logger {
	return slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// leftByDown tells the user what is left by a "proa down" that Ctrl-C has ended after the server was told to stop.
func leftByDown(env *command.Env, c localcluster.Cluster, o downOptions) error {
	fmt.Fprintln(env.Err, "Interrupted. This may be left:")
	if pid, err := c.ServerPID(); err == nil && pid != 0 {
		fmt.Fprintf(env.Err, "  process %d, which was told to stop and goes on doing so\n", pid)
	}
	if !o.keepContainers {
		fmt.Fprintln(env.Err, "  containers of the nodes, and what runs them")
	}
	fmt.Fprintf(env.Err, "  the cluster's context in your kubeconfig\n  the folder %s\n\nNext:\n", c.Dir)
	finish := "down"
	switch {
	case o.purge:
		finish = "down --purge"
	case o.keepContainers:
		finish = "down --keep-containers"
	}
	for _, line := range [][2]string{{finish, "finish that"}, {"up", "start the cluster again, once the process has ended"}} {
		fmt.Fprintf(env.Err, "  %s %s%s   # %s\n", localcluster.Program(), line[0], c.CommandFlags(), line[1])
	}
	return command.ExitCode(command.Interrupted)
}

// stopPods stops the Pods of the nodes that run on this machine, and shows the progress.
func stopPods(ctx context.Context, env *command.Env, c localcluster.Cluster, o downOptions) (*teardown.Stopping, error) {
	var shown time.Time
	before := 0
	stopping, err := teardown.StopPods(ctx, c.Dir, o.limit, func(p teardown.StopProgress) {
		switch {
		case len(p.Left) == 0 || len(p.Left) == before:
		case shown.IsZero():
			fmt.Fprintf(env.Out, "Stopping the containers of %d Pods, which have up to %s (--now for less)\n", len(p.Left), p.Longest)
			shown, before = time.Now(), len(p.Left)
		case time.Since(shown) > 2*time.Second:
			fmt.Fprintf(env.Out, "  %d left: %s\n", len(p.Left), someNames(p.Left))
			shown, before = time.Now(), len(p.Left)
		}
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, errors.New("interrupted: the cluster keeps running, and the Pods that were stopped start again")
	case err != nil && o.purge:
		fmt.Fprintf(env.Err, "Pods were not stopped in order: %v\n", err)
		return &teardown.Stopping{}, nil
	case err != nil:
		return nil, fmt.Errorf("%w\nThe cluster keeps running. Correct that, or stop it with \"proa down --keep-containers\"", err)
	}
	if len(stopping.Left) > 0 {
		fmt.Fprintf(env.Err, "%d Pods did not stop in time and are killed: %s\n", len(stopping.Left), someNames(stopping.Left))
	}
	return stopping, nil
}

// someNames returns the first few of many names.
func someNames(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// showStopped reports that the cluster was stopped, and how long that took.
func showStopped(env *command.Env, c localcluster.Cluster, begin time.Time) {
	fmt.Fprintf(env.Out, "Stopped the cluster in %s (%.1f s)\n", c.Dir, time.Since(begin).Seconds())
}

// stop ends the server: first by SIGTERM and, if it takes too long, by SIGKILL.
func stop(ctx context.Context, env *command.Env, c localcluster.Cluster, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("process %d belongs to another user; run this as that user or as root", pid)
		}
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	// The server lets requests in flight finish, and has stored how long that may take.
	begin, patience, killed := time.Now(), datafolder.StopTime(c.Dir), false
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := c.ServerPID()
		if err != nil {
			return err
		}
		if now != pid {
			return nil
		}
		if !killed && time.Since(begin) > patience {
			fmt.Fprintf(env.Err, "Process %d does not stop; killing it. Nothing acknowledged is lost.\n", pid)
			killed = true
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// removeContext removes the cluster's context from the user's kubeconfig.
func removeContext(env *command.Env, c localcluster.Cluster) error {
	admin, err := os.ReadFile(c.Kubeconfig())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path, err := userkubeconfig.Path()
	if err != nil {
		return err
	}
	if path == c.Kubeconfig() || !command.FileExists(path) {
		return nil // there is no kubeconfig to remove it from
	}
	var found bool
	before, err := os.ReadFile(c.Path(contextFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err = userkubeconfig.Edit(path, func(old []byte) (out []byte, err error) {
		out, found, err = userkubeconfig.Unmerge(admin, old, string(before))
		if err == nil {
			err = userkubeconfig.CleanOriginal(path, admin, out)
		}
		return out, err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if found {
		fmt.Fprintf(env.Out, "Removed its context from %s\n", path)
	}
	return nil
}

// checkDataFolder refuses to remove a folder that is not a cluster's, so that --purge with a mistyped path does not
// delete other data.
func checkDataFolder(c localcluster.Cluster) error {
	entries, err := os.ReadDir(c.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, os.ErrPermission):
		return c.PermissionError()
	case err != nil:
		return err
	}
	home, _ := os.UserHomeDir()
	if c.Dir == "/" || c.Dir == home || filepath.Dir(c.Dir) == c.Dir {
		return fmt.Errorf("%s is not a folder that proa would remove; check --data-dir", c.Dir)
	}
	isCluster := false
	for _, e := range entries {
		switch e.Name() {
		case "pki", "node", "nodes", localcluster.SettingsFile:
			isCluster = true
		case "bin", "etcd", "server.log", "server.pid", "server.stop-time", "admin.kubeconfig", "version", "version.new",
			contextFile:
		default:
			if recordfile.IsName(e.Name()) {
				continue
			}
			return fmt.Errorf("%s holds %s, which proa did not make; move it away or remove the folder yourself", c.Dir, e.Name())
		}
	}
	if !isCluster && len(entries) > 0 {
		return fmt.Errorf("%s does not look like the folder of a cluster; remove it yourself if it is one", c.Dir)
	}
	return nil
}
