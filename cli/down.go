package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"proa.dev/run/machine"
)

func downCommand() Command {
	return Command{
		Name: "down", Short: "stop the cluster",
		Long: `
Stops the cluster of the data folder, with the containers of its nodes, and takes its context out of your kubeconfig. What the
cluster keeps stays in the folder, and "proa up" goes on from there; --purge removes it for good, with every container,
mount, interface and rule that the nodes have made.

--keep-containers leaves the containers running: the next "proa up", with a newer proa perhaps, finds them as they are.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			which := dataDirFlag(fs)
			purge := fs.Bool("purge", false, "remove the data folder too, with everything the cluster kept")
			stay := fs.Bool("keep-containers", false, "leave the containers of the nodes running")
			return func(ctx context.Context, env *Env, args []string) error {
				if *stay && *purge {
					return errors.New("--purge removes containers and --keep-containers keeps them; choose one")
				}
				if err := noArguments("down", args); err != nil {
					return err
				}
				c, err := which()
				if err != nil {
					return err
				}
				return down(ctx, env, c, *purge, *stay)
			}
		},
	}
}

// patience is how long a server may take to stop before it is killed.
const patience = 20 * time.Second

func down(ctx context.Context, env *Env, c cluster, purge, stay bool) error {
	if purge {
		if err := looksOurs(c); err != nil {
			return err
		}
	}
	pid, err := c.pid()
	if err != nil {
		return err
	}
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
	log := slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if !purge {
		if stay {
			return nil
		}
		ended, err := machine.HaltNodes(ctx, c.dir, log)
		if ended > 0 {
			fmt.Fprintf(env.Out, "Ended %d containers\n", ended)
		}
		return err
	}
	if err := machine.PurgeNodes(ctx, c.dir, log); err != nil {
		return fmt.Errorf("remove what the nodes made: %w", err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove the data folder: %w", err)
	}
	fmt.Fprintf(env.Out, "Removed %s\n", c.dir)
	return nil
}

// stop ends the server, first by asking.
func stop(ctx context.Context, env *Env, c cluster, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("process %d belongs to another user; run this as that user or as root", pid)
		}
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	begin, killed := time.Now(), false
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
	err = editKubeconfig(path, func(old []byte) (out []byte, err error) {
		out, found, err = unmergeKubeconfig(admin, old)
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
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
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
		case "bin", "etcd", "server.log", "server.pid", "admin.kubeconfig":
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
