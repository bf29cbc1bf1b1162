package cli

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

	"proa.dev/kinds/period"
	proa "proa.dev/run"
	"proa.dev/run/machine"
)

func downCommand() Command {
	return Command{
		Name: "down", Short: "stop the cluster",
		Long: `
Stops the cluster of the data folder, with the containers of its nodes, and takes its context out of your kubeconfig. What the
cluster keeps stays in the folder, and "proa up" goes on from there; --purge removes it for good, with every container,
mount, interface and rule that the nodes have made.

Pods are stopped first, while the API still runs: preStop hooks run, every Pod has its grace period, sidecars end last. They
start again with the next "proa up". A Pod whose restartPolicy is Never cannot; it fails, and a Job makes another one.
--grace-period and --now give Pods less time. Ctrl-C while Pods stop leaves the cluster running, and they start again.

--keep-containers leaves the containers running: the next "proa up", with a newer proa perhaps, finds them as they are.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			which := anyDataDirFlag(fs)
			purge := fs.Bool("purge", false, "remove the data folder too, with everything the cluster kept")
			stay := fs.Bool("keep-containers", false, "leave the containers of the nodes running")
			grace := fs.Int("grace-period", -1, "give Pods at most `SECONDS` to end; each has its own grace period if not said, up to 10 minutes")
			now := fs.Bool("now", false, "give Pods a second to end, as --grace-period=1 does")
			return func(ctx context.Context, env *Env, args []string) error {
				if *stay && *purge {
					return errors.New("--purge removes containers and --keep-containers keeps them; choose one")
				}
				if err := noArguments("down", args); err != nil {
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
				return down(ctx, env, c, downOptions{purge: *purge, keepContainers: *stay, limit: limit})
			}
		},
	}
}

// downOptions are what "proa down" was told.
type downOptions struct {
	purge, keepContainers bool
	// limit is the most time that a Pod has to end.
	limit time.Duration
}

// longestStop is how long Pods may take to end when nobody has said it.
const longestStop = 10 * time.Minute

// stopLimit is the most time that Pods have, by the flags --grace-period and --now.
func stopLimit(seconds int, now bool) (time.Duration, error) {
	switch {
	case seconds >= 0 && now:
		return 0, errors.New("--now is --grace-period=1, and you say another number; choose one")
	case seconds < -1:
		return 0, fmt.Errorf("--grace-period %d is not a number of seconds", seconds)
	case seconds >= 0:
		return period.Seconds(int64(seconds)), nil
	case now:
		return time.Second, nil
	}
	return longestStop, nil
}

func down(ctx context.Context, env *Env, c cluster, o downOptions) error {
	if o.purge {
		if err := looksOurs(c); err != nil {
			return err
		}
	}
	if err := c.exists(); err != nil {
		return err
	}
	pid, err := c.pid()
	if err != nil {
		return err
	}
	asked := false // the agents have stopped their Pods
	if !o.keepContainers {
		stopping, err := stopPods(ctx, env, c, o)
		if err != nil {
			return err
		}
		defer stopping.Close()
		asked = stopping.Nodes > 0
	}
	err = takeDown(ctx, env, c, o, pid, asked)
	if err != nil && ctx.Err() != nil {
		return leftByDown(env, c, o)
	}
	return err
}

// takeDown ends the server, the agents and, unless they are to be kept, the containers; asked says that the agents have stopped their Pods. With
// --purge everything goes.
func takeDown(ctx context.Context, env *Env, c cluster, o downOptions, pid int, asked bool) error {
	if pid == 0 {
		fmt.Fprintf(env.Out, "The cluster in %s is not running.\n", c.dir)
	} else if err := stop(ctx, env, c, pid); err != nil {
		return err
	}
	left, err := machine.StopAgents(ctx, c.dir)
	for _, name := range left {
		fmt.Fprintf(env.Out, "Stopped the agent of node %s\n", name)
	}
	if err != nil {
		return err
	}
	if err := forget(env, c); err != nil {
		fmt.Fprintf(env.Err, "Your kubeconfig still has its context: %v\n", err)
	}
	if !o.purge {
		if o.keepContainers {
			return nil
		}
		return haltNodes(ctx, env, c, o.limit, asked)
	}
	if err := machine.PurgeNodes(ctx, c.dir, warnings(env)); err != nil {
		return fmt.Errorf("remove what the nodes made: %w", err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove the data folder: %w", err)
	}
	if err := proa.ForgetCluster(c.dir); err != nil {
		fmt.Fprintf(env.Err, "\"proa list\" may go on showing this cluster: %v\n", err)
	}
	fmt.Fprintf(env.Out, "Removed %s\n", c.dir)
	return nil
}

// haltNodes ends the containers and container runtimes of nodes whose agents have ended; asked says that the agents have stopped their Pods, and
// limit is the most time that a Pod has if not.
func haltNodes(ctx context.Context, env *Env, c cluster, limit time.Duration, asked bool) error {
	if asked {
		limit = 0 // what still runs has had its time
	}
	ended, err := machine.HaltNodes(ctx, c.dir, limit, warnings(env))
	if ended > 0 {
		fmt.Fprintf(env.Out, "Ended %d containers\n", ended)
	}
	return err
}

// warnings is a log that shows what users must know.
func warnings(env *Env) *slog.Logger {
	return slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// leftByDown tells what is left by a "proa down" that Ctrl-C has ended when the server was already told to stop.
func leftByDown(env *Env, c cluster, o downOptions) error {
	fmt.Fprintln(env.Err, "Interrupted. This may be left:")
	if pid, err := c.pid(); err == nil && pid != 0 {
		fmt.Fprintf(env.Err, "  process %d, which was told to stop and goes on doing so\n", pid)
	}
	if !o.keepContainers {
		fmt.Fprintln(env.Err, "  containers of the nodes, and what runs them")
	}
	fmt.Fprintf(env.Err, "  the cluster's context in your kubeconfig\n  the folder %s\n\nNext:\n", c.dir)
	finish := "down"
	switch {
	case o.purge:
		finish = "down --purge"
	case o.keepContainers:
		finish = "down --keep-containers"
	}
	for _, line := range [][2]string{{finish, "finish that"}, {"up", "start the cluster again, once the process has ended"}} {
		fmt.Fprintf(env.Err, "  %s %s%s   # %s\n", program(), line[0], c.flags(), line[1])
	}
	return exitCode(interrupted)
}

// stopPods stops the Pods of the nodes that run on this machine, and says how far that is.
func stopPods(ctx context.Context, env *Env, c cluster, o downOptions) (*machine.Stopping, error) {
	var shown time.Time
	before := 0
	stopping, err := machine.StopPods(ctx, c.dir, o.limit, func(p machine.StopProgress) {
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
		return &machine.Stopping{}, nil
	case err != nil:
		return nil, fmt.Errorf("%w\nThe cluster keeps running. Mend that, or stop it with --keep-containers", err)
	}
	if len(stopping.Left) > 0 {
		fmt.Fprintf(env.Err, "%d Pods did not stop in time and are killed: %s\n", len(stopping.Left), someNames(stopping.Left))
	}
	return stopping, nil
}

// someNames are the first few of many.
func someNames(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// stop ends the server, first by asking.
func stop(ctx context.Context, env *Env, c cluster, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("process %d belongs to another user; run this as that user or as root", pid)
		}
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	// The requests in flight may finish; the server says itself how long that may take.
	begin, patience, killed := time.Now(), proa.StopTime(c.dir), false
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := c.pid()
		if err != nil {
			return err
		}
		if now != pid {
			fmt.Fprintf(env.Out, "Stopped the cluster in %s (%.1f s)\n", c.dir, time.Since(begin).Seconds())
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

// forget takes the cluster's context out of the user's kubeconfig.
func forget(env *Env, c cluster) error {
	admin, err := os.ReadFile(c.kubeconfig())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path, err := userKubeconfig()
	if err != nil {
		return err
	}
	if path == c.kubeconfig() || !isThere(path) {
		return nil // nothing to take it out of
	}
	var found bool
	before, err := os.ReadFile(c.file(contextFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err = editKubeconfig(path, func(old []byte) (out []byte, err error) {
		out, found, err = unmergeKubeconfig(admin, old, string(before))
		return out, err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if found {
		fmt.Fprintf(env.Out, "Took its context out of %s\n", path)
	}
	return nil
}

// looksOurs refuses to remove a folder that is not a cluster's: --purge with a mistyped path must not cost anybody a home.
func looksOurs(c cluster) error {
	entries, err := os.ReadDir(c.dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, os.ErrPermission):
		return c.noRights()
	case err != nil:
		return err
	}
	home, _ := os.UserHomeDir()
	if c.dir == "/" || c.dir == home || filepath.Dir(c.dir) == c.dir {
		return fmt.Errorf("%s is not a folder that proa would remove", c.dir)
	}
	ours := false
	for _, e := range entries {
		switch e.Name() {
		case "pki", "node", "nodes", settingsFile:
			ours = true
		case "bin", "etcd", "server.log", "server.pid", "server.stop-time", "admin.kubeconfig", contextFile:
		default:
			return fmt.Errorf("%s holds %s, which proa did not make; move it away or remove the folder yourself", c.dir, e.Name())
		}
	}
	if !ours && len(entries) > 0 {
		return fmt.Errorf("%s does not look like the folder of a cluster; remove it yourself if it is one", c.dir)
	}
	return nil
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
