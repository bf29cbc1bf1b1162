// Package lifecycle has the commands that start and stop clusters on this machine: "proa up", "proa down", "proa
// check", "proa install" and "proa uninstall".
package lifecycle

import (
	"cmp"
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

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/cli/userkubeconfig"
	"proa.dev/internal/wait"
	proa "proa.dev/run"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/machine/teardown"
	"proa.dev/run/settings"
)

// UpCommand returns the command "proa up".
func UpCommand() command.Command {
	return command.Command{
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
and an agent of its own, and the name of the first with a number behind it. Another number later adds nodes or removes
them. Nodes with volumes of their own are removed only with --remove-data:

  proa up --nodes 3

The other settings of a running cluster are not changed: stop it with "proa down" first.

"proa check" reports whether this machine can run a node, and what to do if not.`,
		Settings: settings.All,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			u, values := upFlags(fs)
			return func(ctx context.Context, env *command.Env, args []string) error {
				if err := command.NoArguments("up", args); err != nil {
					return err
				}
				u.env = env
				return u.up(ctx, values)
			}
		},
	}
}

// upFlags declares the flags of "proa up".
func upFlags(fs *flag.FlagSet) (*upCommandRun, settings.Values) {
	u := &upCommandRun{systemd: machineSystemd()}
	fs.StringVar(&u.config, "config", "", "config `FILE` (YAML) with the same names as the flags of \"proa server\"")
	fs.BoolVar(&u.noMerge, "no-merge", false, "do not change your kubeconfig")
	fs.BoolVar(&u.noNode, "no-node", false, "start the control plane alone")
	fs.BoolVar(&u.removeData, "remove-data", false, "remove the volumes of nodes that --nodes removes, with their data")
	fs.DurationVar(&u.timeout, "timeout", time.Minute, "give up when the cluster is not ready after this `DURATION`")
	return u, command.ServerFlags(fs)
}

// upCommandRun is one run of "proa up".
type upCommandRun struct {
	env     *command.Env
	config  string
	noMerge bool
	noNode  bool
	// removeData agrees that the volumes of nodes that are no longer wanted are removed.
	removeData bool
	timeout    time.Duration
	systemd    systemd
	// stored has the settings with which the last "proa up" has started the cluster; nil if there was none.
	stored settings.Values
	// given has the settings of the flags and of the config file, without the data folder.
	given settings.Values
	// notes explain decisions that were made for the user, and are shown when the cluster starts.
	notes []string
}

func (u *upCommandRun) up(ctx context.Context, values settings.Values) error {
	conf, values, err := u.plan(values)
	if err != nil {
		return err
	}
	if conf.Node.Name != "" && os.Geteuid() != 0 {
		return fmt.Errorf("a node that runs containers needs root, and this is user %d; nothing was started. "+
			"Use \"sudo proa up\", or \"proa up --simulate 1\" without --node for a simulated one", os.Geteuid())
	}
	if err := cmp.Or(datafolder.CheckForeign(conf.DataDir), datafolder.CheckVersion(conf.DataDir)); err != nil {
		return err
	}
	c := localcluster.Cluster{Dir: conf.DataDir}
	pid, err := u.running(ctx, c)
	if err != nil {
		return u.notStarted(ctx, c, err)
	}
	restart := pid != 0 && u.stored != nil && conf.Nodes != 0 && conf.Nodes != u.nodesBefore()
	if pid != 0 {
		if err := u.refuseChanges(c, pid, values); err != nil {
			return err
		}
	}
	if pid != 0 && !restart {
		fmt.Fprintf(u.env.Out, "The cluster in %s is already running (process %d).\n", c.Dir, pid)
		return u.waitForRunning(ctx, c, conf, pid)
	}
	if unit := u.systemd.serviceOfCluster(c.Dir, pid); unit != "" {
		return refuseService(c, pid, unit)
	}
	if err := u.refuseLoss(ctx, c, &conf, pid != 0); err != nil {
		return err
	}
	if restart {
		fmt.Fprintf(u.env.Out, "The cluster in %s is started again for %s; containers of the nodes that stay keep running.\n", c.Dir, command.Count(conf.Nodes, "node"))
		stopping := time.Now()
		if err := stop(ctx, u.env, c, pid); err != nil {
			if ctx.Err() != nil {
				fmt.Fprintf(u.env.Err, "Interrupted: process %d was told to stop and goes on doing so, and the cluster was not started again.\n  %s up%s   # start it\n", pid, localcluster.Program(), c.CommandFlags())
				return command.ExitCode(command.Interrupted)
			}
			return err
		}
		showStopped(u.env, c, stopping)
	}
	return u.start(ctx, c, conf, values)
}

// refuseService returns the error about a service that shall be started, or started again with another number of nodes: only systemd does
// that.
func refuseService(c localcluster.Cluster, pid int, unit string) error {
	if pid == 0 {
		return fmt.Errorf("the cluster in %s is the service %s; start it with \"systemctl start %s\"", c.Dir, unit, unit)
	}
	return fmt.Errorf("the cluster in %s is the service %s: change the number of nodes in /etc/proa/config.yaml, and then use \"systemctl restart %s\"", c.Dir, unit, unit)
}

// start launches the server and waits until it is ready.
func (u *upCommandRun) start(ctx context.Context, c localcluster.Cluster, conf proa.Config, values settings.Values) error {
	for _, note := range u.notes {
		fmt.Fprint(u.env.Out, note)
	}
	for _, address := range conf.APIAddresses() {
		if err := u.probe(ctx, c, address); err != nil {
			return u.notStarted(ctx, c, err)
		}
	}
	newFolder := !command.FileExists(c.Path("pki"))
	if u.removeData {
		if err := teardown.AllowDataRemoval(&conf.Config); err != nil {
			return err
		}
	}
	if err := writeSettings(c, values); err != nil {
		return err
	}
	fmt.Fprintf(u.env.Out, "Starting the cluster in %s\n", c.Dir)
	begin := time.Now()
	steps := stepsOf(c, conf, begin)
	log := fileSize(c.LogFile())
	child, err := u.launch(c)
	if err != nil {
		return err
	}
	ended := make(chan string, 1)
	go func() {
		_ = child.Wait()
		ended <- child.ProcessState.String()
	}()
	if err := u.wait(ctx, c, serverToAwait{child.Process.Pid, begin, log, ended}, steps); err != nil {
		if ctx.Err() != nil {
			return u.interrupted(c, child.Process.Pid, newFolder)
		}
		return err
	}
	fmt.Fprintf(u.env.Out, "Ready after %.1f s (process %d)\n", time.Since(begin).Seconds(), child.Process.Pid)
	u.warnOfFullDisk(ctx, c)
	return u.finish(c)
}

// waitForRunning waits until a cluster is ready that was running before, perhaps because an earlier "proa up" was interrupted.
func (u *upCommandRun) waitForRunning(ctx context.Context, c localcluster.Cluster, conf proa.Config, pid int) error {
	steps, err := stepsOfRunning(c, conf, processArguments(pid))
	if err != nil {
		return err
	}
	server := serverToAwait{pid, time.Now(), fileSize(c.LogFile()), nil}
	if err := u.wait(ctx, c, server, u.missingSteps(ctx, c, server, steps)); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintf(u.env.Err, "Interrupted: process %d goes on starting the cluster in the background.\n", pid)
			return command.ExitCode(command.Interrupted)
		}
		return err
	}
	return u.finish(c)
}

// missingSteps returns the steps of a running server that are not done. It asks for as long as "proa up" waits for them, at most.
func (u *upCommandRun) missingSteps(ctx context.Context, c localcluster.Cluster, server serverToAwait, steps []step) []step {
	ctx, cancel := context.WithDeadline(ctx, server.begin.Add(u.timeout))
	defer cancel()
	return slices.DeleteFunc(steps, func(s step) bool {
		a, err := c.Access()
		return err == nil && s.ready(ctx, a) == nil
	})
}

// stepsOfRunning returns what a running server has to do until its cluster is ready. conf is the configuration of "proa up", which another
// command may have started the server without; args is the command line of the server.
func stepsOfRunning(c localcluster.Cluster, conf proa.Config, args []string) ([]step, error) {
	if len(args) > 1 && args[1] == "agent" {
		return nil, fmt.Errorf("%s is the folder of a node of another cluster, whose agent runs; choose another --data-dir", c.Dir)
	}
	if !slices.Contains(args, c.Path(localcluster.SettingsFile)) {
		running, found, err := c.ServerConfig()
		if err != nil {
			return nil, err
		}
		if conf = proa.Default(); found {
			conf = running
		}
		conf.DataDir = c.Dir
	}
	return stepsOf(c, conf, datafolder.LockTime(c.Dir)), nil
}

// processArguments returns the command line of a process; nil if it cannot be read.
func processArguments(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// spaceCheck is the check of /readyz that fails while the store has no room for writes.
const spaceCheck = "storage-space"

// warnOfFullDisk warns that the cluster has started but accepts no writes that need disk space.
func (u *upCommandRun) warnOfFullDisk(ctx context.Context, c localcluster.Cluster) {
	a, err := c.Access()
	if err != nil {
		return
	}
	if code, body, err := a.Get(ctx, "/readyz/"+spaceCheck); err == nil && code == http.StatusInternalServerError {
		for _, failed := range localcluster.ParseChecks(body) {
			fmt.Fprintf(u.env.Err, "Warning: check %s %s\n", failed.Name, command.Printable(failed.Text))
		}
	}
}

// notStarted tells a user who has interrupted the command that nothing runs.
func (u *upCommandRun) notStarted(ctx context.Context, c localcluster.Cluster, err error) error {
	if ctx.Err() == nil {
		return err
	}
	fmt.Fprintf(u.env.Err, "Interrupted: no cluster was started in %s.\n", c.Dir)
	return command.ExitCode(command.Interrupted)
}

// interrupted tells the user what Ctrl-C has left behind: the server runs in a session of its own.
func (u *upCommandRun) interrupted(c localcluster.Cluster, pid int, newFolder bool) error {
	made := "it existed before, and keeps its data"
	if newFolder {
		made = "it was created by this command"
	}
	fmt.Fprintf(u.env.Err, "Interrupted. This is left:\n  process %d, which goes on starting the cluster in the background\n  the folder %s: %s\n\nNext:\n", pid, c.Dir, made)
	for _, line := range [][2]string{{"up", "wait for it again"}, {"down", "stop it"}, {"down --purge", "stop it and remove everything that it has created, including the folder"}} {
		fmt.Fprintf(u.env.Err, "  %s %s%s   # %s\n", localcluster.Program(), line[0], c.CommandFlags(), line[1])
	}
	return command.ExitCode(command.Interrupted)
}

// exitTimeout is how long a killed process and its sockets may take to disappear.
const exitTimeout = 20 * time.Second

// running returns the process that runs the cluster; zero if none does. It waits for a process that was killed and is
// about to end.
func (u *upCommandRun) running(ctx context.Context, c localcluster.Cluster) (int, error) {
	for begin := time.Now(); ; {
		pid, err := c.ServerPID()
		if errors.Is(err, os.ErrPermission) {
			return 0, c.PermissionError()
		}
		if err != nil || pid == 0 || !IsEnding(pid) || time.Since(begin) > exitTimeout {
			return pid, err
		}
		if err := wait.Sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// probe checks whether the address is free, to give a better error than the server's log would. It waits for the
// sockets of a killed server of this folder.
func (u *upCommandRun) probe(ctx context.Context, c localcluster.Cluster, address string) error {
	killed := command.FileExists(c.Path("server.pid"))
	l, err := net.Listen("tcp", address)
	for begin := time.Now(); killed && errors.Is(err, syscall.EADDRINUSE) &&
		time.Since(begin) < exitTimeout; l, err = net.Listen("tcp", address) {
		if err := wait.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
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
func (u *upCommandRun) launch(c localcluster.Cluster) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	log, err := os.OpenFile(c.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close()
	// Not CommandContext: the server must go on when this command ends.
	cmd := exec.Command(self, "server", "--config", c.Path(localcluster.SettingsFile)) //nolint:gosec // G204: this very program
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	return cmd, nil
}

// serverToAwait is the server whose cluster "proa up" waits for.
type serverToAwait struct {
	pid   int
	begin time.Time // when the wait began
	// log is where the part of the server's log begins that is shown.
	log int64
	// ended gets the exit status of the process; nil if this command has not started it.
	ended <-chan string
}

// wait returns when the cluster is ready, or returns why it will not be.
func (u *upCommandRun) wait(ctx context.Context, c localcluster.Cluster, server serverToAwait, steps []step) error {
	ctx, cancel := context.WithDeadline(ctx, server.begin.Add(u.timeout))
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	missing := errors.New("it has not answered yet")
	trouble := ""
	for at := 0; at < len(steps); {
		select {
		case status := <-server.ended:
			return serverEnded(c, server, " with "+status)
		case <-ctx.Done():
			return fmt.Errorf("the cluster is not ready after %s (%s: %w); it keeps trying. \"proa status%s\" shows what is missing, and %s is its log", u.timeout, steps[at].name, missing, c.CommandFlags(), c.LogFile())
		case <-tick.C:
		}
		if now := lastError(localcluster.Tail(c.LogFile(), 10, server.log), server.begin); now != "" && now != trouble {
			trouble = now
			fmt.Fprintf(u.env.Out, "  %-20s %s\n", "in the log", trouble)
		}
		switch pid, err := c.ServerPID(); {
		case err == nil && pid == server.pid:
		case server.ended == nil:
			return serverEnded(c, server, "")
		default:
			missing = errors.New("it has not started yet")
			continue // an admin.kubeconfig of an earlier run may still be there
		}
		a, err := c.Access()
		if err == nil {
			err = steps[at].ready(ctx, a)
		}
		if ctx.Err() == nil {
			missing = err
		}
		if err == nil {
			fmt.Fprintf(u.env.Out, "  %-20s %s after %.1f s\n", steps[at].name, steps[at].done, time.Since(server.begin).Seconds())
			at++
		}
	}
	return nil
}

// serverEnded returns the error about a server that has ended before its cluster was ready.
func serverEnded(c localcluster.Cluster, server serverToAwait, how string) error {
	return fmt.Errorf("the server ended%s. The last lines of %s:\n%s", how, c.LogFile(), localcluster.Tail(c.LogFile(), 10, server.log))
}

// fileSize returns the size of a file; 0 if it cannot be read.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// lastError returns the last error in the lines of a log since a moment; empty if there is none.
func lastError(lines string, since time.Time) (out string) {
	for line := range strings.Lines(lines) {
		at, _ := time.Parse(time.RFC3339, logValue(line, "time"))
		if logValue(line, "level") != slog.LevelError.String() || at.Before(since.Truncate(time.Millisecond)) {
			continue
		}
		if out = logValue(line, "err"); out == "" {
			out = logValue(line, "msg")
		}
	}
	return out
}

// logValue returns the value of a key in a line of a log.
func logValue(line, key string) string {
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

// step is something that "proa up" waits for.
type step struct {
	name, done string
	ready      func(context.Context, *localcluster.Access) error
}

// stepsOf returns what "proa up" waits for: the server, the wanted nodes, and the removal of others. The server starts or has started
// at begin.
func stepsOf(c localcluster.Cluster, conf proa.Config, begin time.Time) []step {
	out := []step{{"API server", "ready", func(ctx context.Context, a *localcluster.Access) error {
		_, err := a.GetOK(ctx, "/readyz?exclude="+spaceCheck) // a server without disk space has started nevertheless
		return err
	}}}
	var wanted []string
	for _, f := range nodefolder.OfConfig(&conf.Config) {
		wanted = append(wanted, f.Name)
		out = append(out, step{"node " + f.Name, "ready", func(ctx context.Context, a *localcluster.Access) error {
			since := begin
			// An agent that has outlived the last server reports what changes, and may have nothing new.
			if pid, err := datafolder.LockHolder(f.LockDir()); err == nil && pid != 0 && datafolder.LockTime(f.LockDir()).Before(begin) {
				since = time.Time{}
			}
			return nodeReady(ctx, a, f.Name, since)
		}})
	}
	have, err := nodefolder.FurtherNames(c.Dir)
	if err != nil || conf.Nodes == 0 {
		return out
	}
	for _, node := range have {
		if slices.Contains(wanted, node) {
			continue
		}
		out = append(out, step{"node " + node, "removed", func(context.Context, *localcluster.Access) error {
			if have, err := nodefolder.FurtherNames(c.Dir); err != nil || slices.Contains(have, node) {
				return errors.Join(err, errors.New("it still exists"))
			}
			return nil
		}})
	}
	return out
}

// nodeReady returns why a node is not ready; nil if it is. Only what its agent has reported since a moment counts: the
// store still has the status of the last run.
func nodeReady(ctx context.Context, a *localcluster.Access, name string, since time.Time) error {
	body, err := a.GetOK(ctx, "/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	var node corev1.Node
	if err := json.Unmarshal(body, &node); err != nil {
		return err
	}
	at := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if at < 0 {
		return errors.New("it has not reported its status")
	}
	ready := node.Status.Conditions[at]
	if ready.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) { // conditions have times in seconds
		return fmt.Errorf("it has not reported its status since this start; its last report is of %s",
			ready.LastHeartbeatTime.Local().Format(time.DateTime))
	}
	if ready.Status != corev1.ConditionTrue {
		return errors.New(ready.Message)
	}
	if since.IsZero() {
		return nil
	}
	return leaseRenewed(ctx, a, name, since)
}

// leaseRenewed returns an error if the agent of a node has not renewed its Lease since a moment.
func leaseRenewed(ctx context.Context, a *localcluster.Access, node string, since time.Time) error {
	code, body, err := a.Get(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+corev1.NamespaceNodeLease+"/leases/"+node)
	if err != nil {
		return err
	}
	var lease coordinationv1.Lease
	if code == http.StatusOK {
		if err := json.Unmarshal(body, &lease); err != nil {
			return err
		}
	}
	if renewed := lease.Spec.RenewTime; renewed == nil || !renewed.After(since) {
		return errors.New("its agent has not renewed its Lease since this start")
	}
	return nil
}

// finish merges the kubeconfig and prints the next commands.
func (u *upCommandRun) finish(c localcluster.Cluster) error {
	a, err := c.Access()
	if err != nil {
		return err
	}
	fmt.Fprintf(u.env.Out, "The API server is at %s\n", a.Server())
	kubectl := "kubectl"
	if _, err := exec.LookPath("kubectl"); err != nil {
		kubectl = localcluster.Program() + " kubectl"
	}
	switch merged, err := u.merge(c, a.Context); {
	case err != nil:
		fmt.Fprintf(u.env.Err, "Your kubeconfig was not changed: %v\n", err)
		fallthrough
	case !merged:
		fmt.Fprintf(u.env.Out, "\nNext:\n  export KUBECONFIG=%s\n", c.Kubeconfig())
	default:
		fmt.Fprint(u.env.Out, "\nNext:\n")
	}
	fmt.Fprintf(u.env.Out, "  %[1]s create deployment hello --image=nginx --port=80\n  %[1]s get pods --watch\n", kubectl)
	fmt.Fprintf(u.env.Out, "  %[1]s status%[2]s\n  %[1]s down%[2]s\n", localcluster.Program(), c.CommandFlags())
	return nil
}

// merge adds the cluster to the user's kubeconfig, unless the user does not want that.
func (u *upCommandRun) merge(c localcluster.Cluster, name string) (bool, error) {
	if u.noMerge {
		return false, nil
	}
	path, err := userkubeconfig.Path()
	if err != nil {
		return false, err
	}
	admin, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return false, err
	}
	if path == c.Kubeconfig() {
		return true, nil
	}
	err = userkubeconfig.Edit(path, func(old []byte) ([]byte, error) {
		if before := userkubeconfig.CurrentContext(admin, old); before != "" {
			if err := os.WriteFile(c.Path(contextFile), []byte(before), 0o600); err != nil {
				return nil, fmt.Errorf("remember which context was current: %w", err)
			}
		}
		merged, err := userkubeconfig.Merge(admin, old)
		if err == nil {
			err = userkubeconfig.KeepOriginal(path, admin, old)
		}
		return merged, err
	})
	switch {
	case errors.Is(err, userkubeconfig.ErrForeignContext):
		return false, fmt.Errorf("its context %q belongs to another cluster; --name gives this one another name", name)
	case err != nil:
		return false, fmt.Errorf("%s: %w", path, err)
	}
	fmt.Fprintf(u.env.Out, "kubectl context %q is set in %s\n", name, path)
	return true, nil
}
