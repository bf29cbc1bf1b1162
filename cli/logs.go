package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"proa.dev/run/machine"
)

func logsCommand() Command {
	return Command{
		Name: "logs", Args: "[NODE]", Short: "show the log of the server, of a node's agent or of its container runtime",
		Long: `
Shows the log of the cluster of the data folder: of the API server, the controllers, the scheduler and the agent of the first node, which
are one process. With the name of another node of this machine it shows the log of that node's agent. --containerd shows the log of
the node's container runtime. The logs of containers are kubectl's: "kubectl logs POD".

  proa logs -f
  proa logs node-2 --tail 100`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			which := dataDirFlag(fs)
			follow := fs.Bool("f", false, "go on showing what is added, until Ctrl-C")
			lines := fs.Int("tail", -1, "begin with the last `N` lines; all lines if not said")
			containerd := fs.Bool("containerd", false, "show the log of the container runtime")
			return func(ctx context.Context, env *Env, args []string) error {
				if len(args) > 1 {
					return fmt.Errorf("logs takes the name of one node, but got %d names", len(args))
				}
				c, err := which()
				if err != nil {
					return err
				}
				conf, _, err := c.config()
				if err != nil {
					return err
				}
				node := ""
				if len(args) == 1 && args[0] != conf.Node.Name {
					node = args[0]
				}
				path, err := machine.LogFile(c.dir, node, *containerd)
				if err != nil {
					return err
				}
				return showLog(ctx, env.Out, path, logOptions{follow: *follow, lines: *lines})
			}
		},
	}
}

// logOptions are the flags of "proa logs".
type logOptions struct {
	follow bool
	lines  int // negative for all
}

// followPause is how often a log that is followed is looked at.
const followPause = 200 * time.Millisecond

// showLog copies a log file and, if it is followed, what is added until ctx ends. A file that has become shorter was begun anew.
func showLog(ctx context.Context, w io.Writer, path string, o logOptions) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no log yet: %s. A server that was not started by \"proa up\" logs to where it was started", path)
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	defer f.Close()
	if o.lines >= 0 {
		start, err := lastLines(f, o.lines)
		if err == nil {
			_, err = f.Seek(start, io.SeekStart)
		}
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
	}
	tick := time.NewTicker(followPause)
	defer tick.Stop()
	for {
		if _, err := io.Copy(w, f); err != nil {
			return fmt.Errorf("show the log: %w", err)
		}
		if !o.follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if info, err := f.Stat(); err == nil && info.Size() < at {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return fmt.Errorf("read the log: %w", err)
			}
		}
	}
}

// lastLines returns where the last n lines of a file begin.
func lastLines(f io.ReadSeeker, n int) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	block := make([]byte, 64<<10)
	found := 0
	for at := end; at > 0; {
		size := min(at, int64(len(block)))
		at -= size
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(f, block[:size]); err != nil {
			return 0, err
		}
		for i := size - 1; i >= 0; i-- {
			if block[i] != '\n' || at+i == end-1 { // the end of the last line is no beginning
				continue
			}
			if found++; found == n {
				return at + i + 1, nil
			}
		}
	}
	if n == 0 {
		return end, nil
	}
	return 0, nil
}
