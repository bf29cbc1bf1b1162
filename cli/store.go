package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/run/datafolder"
)

func storeCommand() command.Command {
	return command.Command{
		Name: "store", Args: "check|repair", Short: "check the files of the embedded store for damage, or repair them",
		Long: `
"proa store check" reads the files of the embedded store of a stopped cluster, and lists what it has found and what is
damaged. It changes nothing. The exit code is 1 if something is damaged.

"proa store repair" lists what can be kept of a damaged store, and which writes would be dropped. With --drop-damaged it
repairs the store: the database stays as it is, and the log is written again with the entries that follow without a gap. The
damaged files are kept in a folder of their own. If there is a backup, consider restoring it instead.

A store needs no repair after a crash or a power cut: a write that was never finished is removed by the next start.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			which := localcluster.DataDirFlag(fs)
			drop := fs.Bool("drop-damaged", false, "repair, and drop what cannot be kept")
			return func(ctx context.Context, env *command.Env, args []string) error {
				if len(args) != 1 || args[0] != "check" && args[0] != "repair" {
					return errors.New("use \"proa store check\" or \"proa store repair\"")
				}
				if *drop && args[0] == "check" {
					return errors.New("--drop-damaged is for proa store repair; check changes nothing")
				}
				c, err := which()
				if err != nil {
					return err
				}
				if err := hasStore(c); err != nil {
					return err
				}
				if err := datafolder.CheckVersion(c.Dir); err != nil {
					return err
				}
				if pid, err := c.ServerPID(); err != nil || pid != 0 {
					return errors.Join(err, fmt.Errorf("the server runs as process %d and uses the store; stop it first: proa down%s", pid, c.CommandFlags()))
				}
				findings, err := datafolder.CheckStore(c.Dir)
				if err != nil {
					return err
				}
				if args[0] == "check" {
					return showFindings(env, c, findings)
				}
				return repairStore(ctx, env, c, findings, *drop)
			}
		},
	}
}

// hasStore returns an error unless the folder has an embedded store and the keys of a cluster beside it: the files of
// another etcd are not proa's to repair.
func hasStore(c localcluster.Cluster) error {
	for _, name := range []string{"pki", "etcd"} {
		if !command.FileExists(c.Path(name)) {
			return fmt.Errorf("%s has no folder %s, and so no embedded store of a cluster", c.Dir, name)
		}
	}
	return nil
}

func showFindings(env *command.Env, c localcluster.Cluster, f datafolder.StoreFindings) error {
	for _, list := range []struct {
		word  string
		lines []string
	}{{"", f.Facts}, {"note: ", f.Notes}, {"damaged: ", f.Damage}} {
		for _, line := range list.lines {
			fmt.Fprintf(env.Out, "%s%s\n", list.word, line)
		}
	}
	if len(f.Damage) > 0 {
		fmt.Fprintf(env.Out, "The store is damaged. Restore a backup, or see what can be kept: proa store repair%s\n", c.CommandFlags())
		return command.ExitCode(1)
	}
	fmt.Fprintln(env.Out, "No damage was found.")
	return nil
}

func repairStore(ctx context.Context, env *command.Env, c localcluster.Cluster, f datafolder.StoreFindings, drop bool) error {
	if len(f.Damage) == 0 {
		fmt.Fprintln(env.Out, "No damage was found, so nothing is changed.")
		return nil
	}
	if !drop {
		r, err := datafolder.PlanStoreRepair(c.Dir)
		if err != nil {
			return err
		}
		showRepair(env, r)
		fmt.Fprintf(env.Out, "Nothing was changed. To do it: proa store repair --drop-damaged%s\n", c.CommandFlags())
		return command.ExitCode(1)
	}
	r, err := datafolder.RepairStore(ctx, c.Dir)
	if err != nil {
		return err
	}
	showRepair(env, r)
	fmt.Fprintf(env.Out, "The store is repaired, and at revision %d. The damaged files are in %s.\n", r.Revision, r.Copy)
	return nil
}

func showRepair(env *command.Env, r datafolder.StoreRepair) {
	fmt.Fprintf(env.Out, "kept: everything up to entry %d of the log\n", r.Last)
	for _, line := range r.Dropped {
		fmt.Fprintf(env.Out, "dropped: %s\n", line)
	}
	if len(r.Dropped) == 0 {
		fmt.Fprintln(env.Out, "dropped: nothing that is known to have been written")
	}
}
