package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"

	proa "proa.dev/run"
)

func storeCommand() Command {
	return Command{
		Name: "store", Args: "check|repair", Short: "look for damage in the files of the embedded store, or repair them",
		Long: `
"proa store check" reads the files of the embedded store, which has to be stopped, and says what is there and what is
damaged. It changes nothing. The exit code is 1 if something is damaged.

"proa store repair" says what can be kept of a damaged store, and which writes would be dropped. With --drop-damaged it
does so: the database stays as it is, the log is written anew with the entries that follow without a gap. The damaged files
are kept in a folder of their own. If there is a backup, consider to restore it instead.

A store needs no repair after a crash or a power cut: a write that was never finished is removed by the next start.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			which := dataDirFlag(fs)
			drop := fs.Bool("drop-damaged", false, "repair, and drop what cannot be kept")
			return func(ctx context.Context, env *Env, args []string) error {
				if len(args) != 1 || args[0] != "check" && args[0] != "repair" {
					return errors.New("say what to do: proa store check, or proa store repair")
				}
				if *drop && args[0] == "check" {
					return errors.New("--drop-damaged is for proa store repair; check changes nothing")
				}
				c, err := which()
				if err != nil {
					return err
				}
				if err := c.hasStore(); err != nil {
					return err
				}
				if pid, err := c.pid(); err != nil || pid != 0 {
					return errors.Join(err, fmt.Errorf("the server runs as process %d and uses the store; stop it first: proa down%s", pid, c.flags()))
				}
				findings, err := proa.CheckStore(c.dir)
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

// hasStore returns an error unless the folder has an embedded store and the keys of a cluster beside it: a folder with the files of some other etcd
// is none of ours to repair.
func (c cluster) hasStore() error {
	for _, name := range []string{"pki", "etcd"} {
		if !isThere(c.file(name)) {
			return fmt.Errorf("%s has no folder %s, and so no embedded store of a cluster", c.dir, name)
		}
	}
	return nil
}

func showFindings(env *Env, c cluster, f proa.StoreFindings) error {
	for _, list := range []struct {
		word  string
		lines []string
	}{{"", f.Facts}, {"note: ", f.Notes}, {"damaged: ", f.Damage}} {
		for _, line := range list.lines {
			fmt.Fprintf(env.Out, "%s%s\n", list.word, line)
		}
	}
	if len(f.Damage) > 0 {
		fmt.Fprintf(env.Out, "The store is damaged. Restore a backup, or see what can be kept: proa store repair%s\n", c.flags())
		return exitCode(1)
	}
	fmt.Fprintln(env.Out, "No damage was found.")
	return nil
}

func repairStore(ctx context.Context, env *Env, c cluster, f proa.StoreFindings, drop bool) error {
	if len(f.Damage) == 0 {
		fmt.Fprintln(env.Out, "No damage was found, so nothing is changed.")
		return nil
	}
	if !drop {
		r, err := proa.PlanStoreRepair(c.dir)
		if err != nil {
			return err
		}
		showRepair(env, r)
		fmt.Fprintf(env.Out, "Nothing was changed. To do it: proa store repair --drop-damaged%s\n", c.flags())
		return exitCode(1)
	}
	r, err := proa.RepairStore(ctx, c.dir)
	if err != nil {
		return err
	}
	showRepair(env, r)
	fmt.Fprintf(env.Out, "The store is repaired, and at revision %d. The damaged files are in %s.\n", r.Revision, r.Copy)
	return nil
}

func showRepair(env *Env, r proa.StoreRepair) {
	fmt.Fprintf(env.Out, "kept: everything up to entry %d of the log\n", r.Last)
	for _, line := range r.Dropped {
		fmt.Fprintf(env.Out, "dropped: %s\n", line)
	}
	if len(r.Dropped) == 0 {
		fmt.Fprintln(env.Out, "dropped: nothing that is known to have been written")
	}
}
