package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"text/tabwriter"
	"time"

	"proa.dev/run/machine"
)

func imagesCommand() Command {
	return Command{
		Name: "images", Args: "load FILE... | list", Short: "put images on the nodes without a registry",
		Long: `
"proa images load" brings image archives to every node of the cluster on this machine, as "docker save" or an OCI layout in a tar file
make them, compressed or not. What is there already is not brought again. If the cluster is not running, the archives
are kept for its next start. Pods find the images under the names they have in the archive.

  docker save hello:1 | gzip > hello.tar.gz
  proa images load hello.tar.gz

"proa images list" shows the images that the nodes have.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			which := dataDirFlag(fs)
			format := outputFlag(fs)
			return func(ctx context.Context, env *Env, args []string) error {
				c, err := which()
				if err != nil {
					return err
				}
				switch {
				case len(args) > 1 && args[0] == "load":
					return loadImages(ctx, env, c, args[1:])
				case len(args) == 1 && args[0] == "load":
					return errors.New("images load needs the path of an archive")
				case len(args) == 1 && args[0] == "list":
					output, err := format()
					if err != nil {
						return err
					}
					return listImages(ctx, env, c, output)
				}
				return errors.New("say \"proa images load FILE...\" or \"proa images list\"")
			}
		},
	}
}

func loadImages(ctx context.Context, env *Env, c cluster, files []string) error {
	for _, file := range files {
		begin := time.Now()
		names, kept, err := machine.LoadImages(ctx, c.dir, file)
		if err != nil {
			return err
		}
		if kept != "" {
			fmt.Fprintf(env.Out, "The cluster is not running; %s is kept as %s and loaded when it starts.\n", file, kept)
			continue
		}
		for _, name := range names {
			fmt.Fprintf(env.Out, "%s\n", plain(name))
		}
		fmt.Fprintf(env.Out, "Loaded %s in %.1f s\n", file, time.Since(begin).Seconds())
	}
	return nil
}

func listImages(ctx context.Context, env *Env, c cluster, output string) error {
	nodes, err := machine.ListImages(ctx, c.dir)
	if err != nil {
		return err
	}
	if output == "json" {
		e := json.NewEncoder(env.Out)
		e.SetIndent("", "  ")
		if len(nodes) == 1 {
			return e.Encode(nodes[0].Images)
		}
		return e.Encode(nodes)
	}
	w := tabwriter.NewWriter(env.Out, 0, 4, 2, ' ', 0)
	if len(nodes) == 1 {
		fmt.Fprintln(w, "NAME\tDIGEST")
	} else {
		fmt.Fprintln(w, "NODE\tNAME\tDIGEST")
	}
	for _, n := range nodes {
		for _, i := range n.Images {
			if len(nodes) > 1 {
				fmt.Fprintf(w, "%s\t", n.Node)
			}
			fmt.Fprintf(w, "%s\t%s\n", plain(i.Name), plain(i.Digest))
		}
	}
	return w.Flush()
}
