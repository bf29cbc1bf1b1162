package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	proa "proa.dev/run"
	"proa.dev/run/machine"
)

func upCommand() Command {
	return Command{
		Name: "up", Short: "start a cluster on this machine",
		Long: `
Starts a control plane in the background, waits until it is ready, and adds it to your kubeconfig as the current
context. The cluster lives in its data folder; "proa down" stops it, and "proa up" starts it again as it was, with
the flags it was given then.

Several clusters live side by side when each has its own folder, address and name:

  proa up --data-dir /tmp/other --listen 127.0.0.1:7443 --name other

This starts the API server, its store, the controllers, the scheduler and a node: a container runtime of its own, in the
data folder. The node needs root. Without root there are simulated nodes instead, on which Pods go through their
phases without running a container; --simulate asks for them, and --no-node for none at all:

  proa up --simulate 3

--nodes asks for several real ones. The first is the machine; each of the others has a network namespace, a container runtime
and an agent of its own, and the name of the first with a number behind it. Saying another number later adds nodes or removes
them. Nodes with volumes of their own are removed only with --remove-data:

  proa up --nodes 3

The other settings of a running cluster are not changed: stop it with "proa down" first.

"proa check" says whether this machine can run a node, and what to do if not.`,
		Settings: proa.Settings,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			said := serverFlags(fs)
			var u upper
			fs.StringVar(&u.config, "config", "", "config `FILE` (YAML) with the same names as the flags of \"proa server\"")
			fs.BoolVar(&u.noMerge, "no-merge", false, "leave your kubeconfig alone")
			fs.BoolVar(&u.noNode, "no-node", false, "start the control plane alone")
			fs.BoolVar(&u.removeData, "remove-data", false, "remove the volumes of nodes that --nodes removes, with all that is in them")
			fs.DurationVar(&u.timeout, "timeout", time.Minute, "give up when the cluster is not ready after this `DURATION`")
			return func(ctx context.Context, env *Env, args []string) error {
				if err := noArguments("up", args); err != nil {
					return err
				}
				u.env = env
				return u.up(ctx, said)
			}
		},
	}
}

// upper is one run of "proa up".
type upper struct {
	env     *Env
	config  string
	noMerge bool
	noNode  bool
	// removeData agrees that the volumes of nodes that are no longer wanted are removed.
	removeData bool
	timeout    time.Duration
	// stored is what the last "up" has started the cluster with; nil if none has.
	stored proa.Said
	// given is what flags and the config file say now, without the data folder.
	given proa.Said
	// notes are what the user is told about decisions that were made for him, when the cluster starts.
	notes []string
}

func (u *upper) up(ctx context.Context, said proa.Said) error {
	conf, said, err := u.settle(said)
	if err != nil {
		return err
	}
	if conf.Node.Name != "" && os.Geteuid() != 0 {
		return fmt.Errorf("a node that runs containers needs root, and this is user %d; nothing was started. "+
			"Say \"sudo proa up\", or \"proa up --simulate 1\" without --node for a simulated one", os.Geteuid())
	}
	c := cluster{conf.DataDir}
	pid, err := u.running(ctx, c)
	if err != nil {
		return u.notStarted(ctx, c, err)
	}
	restart := pid != 0 && u.stored != nil && conf.Nodes != 0 && conf.Nodes != u.nodesBefore()
	if pid != 0 {
		if err := u.refuseChanges(c, pid, said); err != nil {
			return err
		}
	}
	if pid != 0 && !restart {
		fmt.Fprintf(u.env.Out, "The cluster in %s is already running (process %d).\n", c.dir, pid)
		return u.finish(c)
	}
	if err := u.refuseLoss(ctx, c, &conf, pid != 0); err != nil {
		return err
	}
	if restart {
		fmt.Fprintf(u.env.Out, "The cluster in %s is started again for %s; containers of the nodes that stay keep running.\n", c.dir, count(conf.Nodes, "node"))
		if err := stop(ctx, u.env, c, pid); err != nil {
			if ctx.Err() != nil {
				fmt.Fprintf(u.env.Err, "Interrupted: process %d was told to stop and goes on doing so, and the cluster was not started again.\n  %s up%s   # start it\n", pid, program(), c.flags())
				return exitCode(interrupted)
			}
			return err
		}
	}
	return u.start(ctx, c, conf, said)
}

// start launches the server and waits until it is ready.
func (u *upper) start(ctx context.Context, c cluster, conf proa.Config, said proa.Said) error {
	for _, note := range u.notes {
		fmt.Fprint(u.env.Out, note)
	}
	for _, address := range conf.APIAddresses() {
		if err := u.probe(ctx, c, address); err != nil {
			return u.notStarted(ctx, c, err)
		}
	}
	fresh := !isThere(c.file("pki"))
	if err := remember(c, said); err != nil {
		return err
	}
	fmt.Fprintf(u.env.Out, "Starting the cluster in %s\n", c.dir)
	begin := time.Now()
	child, err := u.launch(c)
	if err != nil {
		return err
	}
	if err := u.wait(ctx, c, child, begin, conf); err != nil {
		if ctx.Err() != nil {
			return u.interrupted(c, child.Process.Pid, fresh)
		}
		return err
	}
	fmt.Fprintf(u.env.Out, "Ready after %.1f s (process %d)\n", time.Since(begin).Seconds(), child.Process.Pid)
	u.warnOfFullDisk(ctx, c)
	return u.finish(c)
}

// spaceCheck is the check of /readyz that fails while the store has no room for writes.
const spaceCheck = "storage-space"

// warnOfFullDisk says that the cluster has started but takes no writes that need room.
func (u *upper) warnOfFullDisk(ctx context.Context, c cluster) {
	a, err := c.access()
	if err != nil {
		return
	}
	if code, body, err := a.get(ctx, "/readyz/"+spaceCheck); err == nil && code == http.StatusInternalServerError {
		for _, failed := range parseChecks(body) {
			fmt.Fprintf(u.env.Err, "Warning: check %s %s\n", failed.Name, plain(failed.Text))
		}
	}
}

// notStarted tells a user who has interrupted the command that nothing runs.
func (u *upper) notStarted(ctx context.Context, c cluster, err error) error {
	if ctx.Err() == nil {
		return err
	}
	fmt.Fprintf(u.env.Err, "Interrupted: no cluster was started in %s.\n", c.dir)
	return exitCode(interrupted)
}

// interrupted tells what Ctrl-C has left behind: the server runs in a session of its own.
func (u *upper) interrupted(c cluster, pid int, fresh bool) error {
	made := "it was there before, and keeps what it had"
	if fresh {
		made = "it was made now"
	}
	fmt.Fprintf(u.env.Err, "Interrupted. This is left:\n  process %d, which goes on starting the cluster in the background\n  the folder %s: %s\n\nNext:\n", pid, c.dir, made)
	for _, line := range [][2]string{{"up", "wait for it again"}, {"down", "stop it"}, {"down --purge", "stop it and remove everything that it has made, the folder too"}} {
		fmt.Fprintf(u.env.Err, "  %s %s%s   # %s\n", program(), line[0], c.flags(), line[1])
	}
	return exitCode(interrupted)
}

// patience is how long a process that was killed may take until it and its socket are gone.
const patience = 20 * time.Second

// running is the process that runs the cluster, zero if none does. One that was killed, and only needs a moment, is waited for.
func (u *upper) running(ctx context.Context, c cluster) (int, error) {
	for begin := time.Now(); ; {
		pid, err := c.pid()
		if errors.Is(err, os.ErrPermission) {
			return 0, c.noRights()
		}
		if err != nil || pid == 0 || !ending(pid) || time.Since(begin) > patience {
			return pid, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// probe finds out whether the address is free, for a better answer than the server's log could give. A server of this folder
// that was killed may need a moment until its sockets are gone.
func (u *upper) probe(ctx context.Context, c cluster, address string) error {
	killed := isThere(c.file("server.pid"))
	l, err := net.Listen("tcp", address)
	for begin := time.Now(); killed && errors.Is(err, syscall.EADDRINUSE) && time.Since(begin) < patience; l, err = net.Listen("tcp", address) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is taken by another program, maybe another cluster; choose a free port with --listen 127.0.0.1:PORT", address)
	}
	return fmt.Errorf("cannot listen on %s: %w; --listen chooses another address", address, err)
}

// launch starts the server in a session of its own, so that it outlives this terminal.
func (u *upper) launch(c cluster) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close()
	// Not CommandContext: the server must go on when this command ends.
	cmd := exec.Command(self, "server", "--config", c.file(settingsFile)) //nolint:gosec // G204: this very program
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	return cmd, nil
}

// wait returns when the cluster is ready, or says why it will not be.
func (u *upper) wait(ctx context.Context, c cluster, child *exec.Cmd, begin time.Time, conf proa.Config) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended) // the channel is what this goroutine is waited for by
		_ = child.Wait()
	}()
	steps := c.steps(conf)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	var missing error
	trouble := ""
	for at := 0; at < len(steps); {
		select {
		case <-ended:
			return fmt.Errorf("the server ended with %s. The last lines of %s:\n%s", child.ProcessState, c.log(), tail(c.log(), 10))
		case <-ctx.Done():
			return fmt.Errorf("the cluster is not ready after %s (%s: %w); it keeps trying. \"proa status%s\" shows what is missing, %s what it says", u.timeout, steps[at].name, missing, c.flags(), c.log())
		case <-tick.C:
		}
		if now := lastError(tail(c.log(), 10), begin); now != "" && now != trouble {
			trouble = now
			fmt.Fprintf(u.env.Out, "  %-20s %s\n", "in the log", trouble)
		}
		if pid, err := c.pid(); err != nil || pid != child.Process.Pid {
			missing = errors.New("it has not begun")
			continue // an admin.kubeconfig of an earlier run may still be there
		}
		a, err := c.access()
		if err == nil {
			err = steps[at].ready(ctx, a)
		}
		if ctx.Err() == nil {
			missing = err
		}
		if err == nil {
			fmt.Fprintf(u.env.Out, "  %-20s %s after %.1f s\n", steps[at].name, steps[at].done, time.Since(begin).Seconds())
			at++
		}
	}
	return nil
}

// lastError is the last mistake that the lines of a log tell of since a moment, empty if there is none.
func lastError(lines string, since time.Time) (out string) {
	for line := range strings.Lines(lines) {
		at, _ := time.Parse(time.RFC3339, logged(line, "time"))
		if logged(line, "level") != slog.LevelError.String() || at.Before(since.Truncate(time.Millisecond)) {
			continue
		}
		if out = logged(line, "err"); out == "" {
			out = logged(line, "msg")
		}
	}
	return out
}

// logged is the value of a key in a line of a log.
func logged(line, key string) string {
	_, rest, found := strings.Cut(" "+line, " "+key+"=")
	if !found {
		return ""
	}
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		text, _ := strconv.Unquote(quoted)
		return text
	}
	word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	return word
}

// step is a part that "up" waits for.
type step struct {
	name, done string
	ready      func(context.Context, *access) error
}

// steps are what "up" waits for: the server, the nodes that there shall be, and the end of those that there shall not.
func (c cluster) steps(conf proa.Config) []step {
	out := []step{{"API server", "ready", func(ctx context.Context, a *access) error {
		_, err := a.ok(ctx, "/readyz?exclude="+spaceCheck) // it has started all the same
		return err
	}}}
	wanted := machine.NodeNames(&conf)
	for _, node := range wanted {
		out = append(out, step{"node " + node, "ready", func(ctx context.Context, a *access) error { return nodeReady(ctx, a, node) }})
	}
	have, err := machine.Further(c.dir)
	if err != nil || conf.Nodes == 0 {
		return out
	}
	for _, node := range have {
		if slices.Contains(wanted, node) {
			continue
		}
		out = append(out, step{"node " + node, "removed", func(context.Context, *access) error {
			if have, err := machine.Further(c.dir); err != nil || slices.Contains(have, node) {
				return errors.Join(err, errors.New("it is still there"))
			}
			return nil
		}})
	}
	return out
}

// count says how many of something there are.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// nodeReady says what a node still lacks.
func nodeReady(ctx context.Context, a *access, name string) error {
	body, err := a.ok(ctx, "/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string } `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" {
			if c.Status == "True" {
				return nil
			}
			return errors.New(c.Message)
		}
	}
	return errors.New("it has not said how it is")
}

// finish merges the kubeconfig and says what to do next.
func (u *upper) finish(c cluster) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	fmt.Fprintf(u.env.Out, "The API server is at %s\n", a.server())
	kubectl := "kubectl"
	if _, err := exec.LookPath("kubectl"); err != nil {
		kubectl = program() + " kubectl"
	}
	switch merged, err := u.merge(c, a.Context); {
	case err != nil:
		fmt.Fprintf(u.env.Err, "Your kubeconfig was left alone: %v\n", err)
		fallthrough
	case !merged:
		fmt.Fprintf(u.env.Out, "\nNext:\n  export KUBECONFIG=%s\n", c.kubeconfig())
	default:
		fmt.Fprint(u.env.Out, "\nNext:\n")
	}
	fmt.Fprintf(u.env.Out, "  %[1]s create deployment hello --image=nginx --port=80\n  %[1]s get pods --watch\n", kubectl)
	fmt.Fprintf(u.env.Out, "  %[1]s status%[2]s\n  %[1]s down%[2]s\n", program(), c.flags())
	return nil
}

func (u *upper) merge(c cluster, name string) (bool, error) {
	if u.noMerge {
		return false, nil
	}
	path, err := userKubeconfig()
	if err != nil {
		return false, err
	}
	admin, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		return false, err
	}
	if path == c.kubeconfig() {
		return true, nil
	}
	err = editKubeconfig(path, func(old []byte) ([]byte, error) {
		if before := currentContext(admin, old); before != "" {
			if err := os.WriteFile(c.file(contextFile), []byte(before), 0o600); err != nil {
				return nil, fmt.Errorf("remember which context was current: %w", err)
			}
		}
		return mergeKubeconfig(admin, old)
	})
	switch {
	case errors.Is(err, errForeign):
		return false, fmt.Errorf("its context %q belongs to another cluster; --name gives this one another name", name)
	case err != nil:
		return false, fmt.Errorf("%s: %w", path, err)
	}
	fmt.Fprintf(u.env.Out, "kubectl context %q is set in %s\n", name, path)
	return true, nil
}

// tail gives the last n lines of a log.
func tail(path string, n int) string {
	var b strings.Builder
	if err := showLog(context.Background(), &b, path, logOptions{lines: n}); err != nil {
		return err.Error()
	}
	return strings.TrimRight(b.String(), "\n")
}
