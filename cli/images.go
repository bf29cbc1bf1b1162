package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"text/tabwriter"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/run/machine/nodeimages"
)

func imagesCommand() command.Command {
	return command.Command{
		Name: "images", Args: "load FILE... | pull NAME... | remove NAME... | list", Words: []string{"load", "pull", "remove", "list"},
		Short: "bring images to the nodes, list or remove them",
		Long: `
"proa images load" brings image archives to every node of the cluster on this machine, as "docker save" or an OCI layout in a tar file
make them, compressed or not. What is there already is not brought again. If the cluster is not running, the archives
are kept for its next start. Pods find the images under the names they have in the archive.

  docker save hello:1 | gzip > hello.tar.gz
  proa images load hello.tar.gz

"proa images pull" brings images from their registry to every node, before a Pod asks for them; "proa images remove" removes images
by name. "proa images list" shows the images that the nodes have.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			which := localcluster.DataDirFlag(fs)
			format := command.OutputFlag(fs)
			return func(ctx context.Context, env *command.Env, args []string) error {
				c, err := which()
				if err != nil {
					return err
				}
				switch {
				case len(args) > 1 && args[0] == "load":
					return loadImages(ctx, env, c, args[1:])
				case len(args) == 1 && args[0] == "load":
					return errors.New("images load needs the path of an archive")
				case len(args) > 1 && args[0] == "pull":
					return pullImages(ctx, env, c, args[1:])
				case len(args) > 1 && args[0] == "remove":
					return removeImages(ctx, env, c, args[1:])
				case len(args) == 1 && (args[0] == "pull" || args[0] == "remove"):
					return fmt.Errorf("images %s needs the name of an image", args[0])
				case len(args) == 1 && args[0] == "list":
					output, err := format()
					if err != nil {
						return err
					}
					return listImages(ctx, env, c, output)
				}
				return errors.New("use \"proa images load FILE...\", \"proa images pull NAME...\", \"proa images remove NAME...\" or \"proa images list\"")
			}
		},
	}
}

func loadImages(ctx context.Context, env *command.Env, c localcluster.Cluster, files []string) error {
	for _, file := range files {
		begin := time.Now()
		names, kept, err := nodeimages.LoadImages(ctx, c.Dir, file)
		if err != nil {
			return err
		}
		if kept != "" {
			fmt.Fprintf(env.Out, "The cluster is not running; %s is kept as %s and loaded when it starts.\n", file, kept)
			continue
		}
		for _, name := range names {
			fmt.Fprintf(env.Out, "%s\n", command.Printable(name))
		}
		fmt.Fprintf(env.Out, "Loaded %s in %.1f s\n", file, time.Since(begin).Seconds())
	}
	return nil
}

func pullImages(ctx context.Context, env *command.Env, c localcluster.Cluster, names []string) error {
	for _, name := range names {
		begin := time.Now()
		fmt.Fprintf(env.Out, "Pulling %s\n", command.Printable(name))
		if err := nodeimages.PullImage(ctx, c.Dir, name); err != nil {
			return err
		}
		fmt.Fprintf(env.Out, "Pulled %s in %.1f s\n", command.Printable(name), time.Since(begin).Seconds())
	}
	return nil
}

func removeImages(ctx context.Context, env *command.Env, c localcluster.Cluster, names []string) error {
	for _, name := range names {
		nodes, err := nodeimages.RemoveImage(ctx, c.Dir, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Out, "Removed %s from %s\n", command.Printable(name), command.Count(nodes, "node"))
	}
	return nil
}

func listImages(ctx context.Context, env *command.Env, c localcluster.Cluster, output string) error {
	nodes, err := nodeimages.ListImages(ctx, c.Dir)
	if err != nil {
		return err
	}
	if output == "json" {
		if len(nodes) == 1 {
			return command.WriteJSON(env.Out, nodes[0].Images)
		}
		return command.WriteJSON(env.Out, nodes)
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
			fmt.Fprintf(w, "%s\t%s\n", command.Printable(i.Name), command.Printable(i.Digest))
		}
	}
	return w.Flush()
}
