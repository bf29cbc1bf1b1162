package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/localpath"
	"proa.dev/network/link"
	"proa.dev/node/netns"
	"proa.dev/node/subprocess"
	"proa.dev/run"
)

// further is a node of this machine beside the first: an agent in a process and a network namespace of its own.
type further struct {
	name string
	// number is its place on the link; the first node, which is the machine, has 1.
	number int
	// dir is the agent's data folder.
	dir string
}

// nodesDir has a folder for each further node.
func nodesDir(dataDir string) string { return filepath.Join(dataDir, "nodes") }

// netns is where its network namespace is mounted.
func (f further) netns() string { return filepath.Join(f.dir, "netns") }

// log is where its agent writes.
func (f further) log() string { return filepath.Join(f.dir, "agent.log") }

// resolv tells it, and its Pods, which name servers there are.
func (f further) resolv() string { return filepath.Join(f.dir, "resolv.conf") }

// NodeNames are the names of the nodes of a config that run containers on this machine.
func NodeNames(c *run.Config) (out []string) {
	if c.Node.Name == "" {
		return nil
	}
	out = []string{c.Node.Name}
	for _, f := range wanted(c) {
		out = append(out, f.name)
	}
	return out
}

// wanted are the further nodes that there shall be.
func wanted(c *run.Config) (out []further) {
	for n := 2; n <= c.Nodes && c.Node.Name != ""; n++ {
		name := fmt.Sprintf("%s-%d", c.Node.Name, n)
		out = append(out, further{name, n, filepath.Join(nodesDir(c.DataDir), name)})
	}
	return out
}

// Further are the further nodes that a data folder has, by name, whether or not they run.
func Further(dataDir string) (names []string, err error) {
	all, err := existing(dataDir)
	for _, f := range all {
		names = append(names, f.name)
	}
	return names, err
}

func existing(dataDir string) (out []further, err error) {
	entries, err := os.ReadDir(nodesDir(dataDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("find the nodes of this machine: %w", err)
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name()[strings.LastIndexByte(e.Name(), '-')+1:])
		if e.IsDir() && err == nil {
			out = append(out, further{e.Name(), n, filepath.Join(nodesDir(dataDir), e.Name())})
		}
	}
	slices.SortFunc(out, func(a, b further) int { return a.number - b.number })
	return out, nil
}

// furtherNodes keeps the further nodes running until ctx ends, and removes those that are no longer wanted. Where nobody has
// said how many there shall be, what is there stays.
func (s *Machine) furtherNodes(ctx context.Context) error {
	if s.Nodes == 0 {
		<-ctx.Done()
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.Persist(ctx, "fewer-nodes", func() error { return s.fewerNodes(ctx) }) })
	if s.link == nil {
		<-ctx.Done()
		return nil
	}
	want := wanted(&s.Config)
	if _, server := s.nodeResolv(); server != "" {
		relay := &link.Relay{Listen: at(s.link.Addresses(1)[0], 53), Server: server, Log: s.Log()}
		wg.Go(func() { s.Persist(ctx, "node-names", func() error { return relay.Run(ctx) }) })
	}
	for _, f := range want {
		wg.Go(func() { s.keepNode(ctx, f) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
		if err := link.Mend(*s.link); err != nil {
			s.Log().ErrorContext(ctx, "the link of the nodes is not whole", "err", err)
		}
		if err := s.writeResolv(want); err != nil {
			s.Log().ErrorContext(ctx, "the nodes do not know the name servers of the machine", "err", err)
		}
	}
}

// fewerNodes removes the nodes that are no longer wanted, and the link with the last of them. It returns when ctx ends.
func (s *Machine) fewerNodes(ctx context.Context) error {
	nodes, err := unwanted(&s.Config)
	if err != nil {
		return err
	}
	for _, f := range nodes {
		e := mayRemove(f)
		if e == nil {
			e = s.removeNode(ctx, f)
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("remove the node %s: %w", f.name, e))
		}
	}
	if err == nil && s.link == nil {
		err = purgeLink(s.DataDir)
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

const (
	// lookAgain is how often it is looked whether somebody has taken the link or a cable away.
	lookAgain = 30 * time.Second
	// steady is how long an agent must have run for its end to count as the first.
	steady = time.Minute
	// agentPatience is how long an agent may take to end.
	agentPatience = 10 * time.Second
)

// keepNode runs the agent of a node, again and again, until ctx ends.
func (s *Machine) keepNode(ctx context.Context, f further) {
	const first, last = 100 * time.Millisecond, 10 * time.Second
	for pause := first; ; pause = min(2*pause, last) {
		begin := time.Now()
		err := s.RunPart(ctx, "agent of node "+f.name, func() error { return s.runAgent(ctx, f) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > steady {
			pause = first
		}
		s.Log().ErrorContext(ctx, "the agent of a node has ended; it begins again", "node", f.name, "err", err, "log", f.log())
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// runAgent starts the agent of a node, or takes over the one that an earlier server has left, and returns when it has ended.
// When ctx ends the agent is ended; its containers go on.
func (s *Machine) runAgent(ctx context.Context, f further) error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the node: %w", err)
	}
	if err := netns.Make(f.netns()); err != nil {
		return err
	}
	if err := link.Plug(*s.link, f.number, f.netns()); err != nil {
		return err
	}
	if err := s.writeResolv([]further{f}); err != nil {
		return err
	}
	p, err := s.adopt(ctx, f)
	if err == nil && p == nil {
		p, err = s.startAgent(f)
	}
	if err != nil {
		return err
	}
	defer p.Release()
	var wg sync.WaitGroup
	defer wg.Wait()
	beside, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { subprocess.BoundLog(beside, f.log(), subprocess.LogBytes, s.Log()) })
	wg.Go(func() { s.shareImages(beside, f) })
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return p.Terminate(context.WithoutCancel(ctx), agentPatience)
		case <-p.Done:
			return fmt.Errorf("process %d is gone", p.Pid)
		case <-look.C:
			if err := link.Plug(*s.link, f.number, f.netns()); err != nil {
				s.Log().ErrorContext(ctx, "the cable of a node is not whole", "node", f.name, "err", err)
			}
		}
	}
}

// adopt finds the agent that an earlier server has left running. One that was started differently is ended.
func (s *Machine) adopt(ctx context.Context, f further) (*subprocess.Process, error) {
	fresh, err := s.admit(ctx, f)
	if err != nil {
		return nil, err
	}
	p, err := holderOf(f.dir)
	if err != nil || p == nil {
		return nil, err
	}
	self, err := os.Executable()
	if err == nil && !fresh && p.Runs(append([]string{self}, s.agentArgs(f)...)) {
		s.Log().InfoContext(ctx, "the agent of a node is still running, and is taken over", "node", f.name, "pid", p.Pid)
		return p, nil
	}
	s.Log().InfoContext(ctx, "the agent of a node runs with other settings, and is started again", "node", f.name, "pid", p.Pid)
	defer p.Release()
	return nil, p.Terminate(context.WithoutCancel(ctx), agentPatience)
}

// startAgent starts the agent of a node in its network namespace, with all that it needs to know.
func (s *Machine) startAgent(f further) (*subprocess.Process, error) {
	if err := shareArchives(imageDir(s.DataDir), imageDir(f.dir)); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return subprocess.Start(subprocess.Command{Program: self, Args: s.agentArgs(f), Log: f.log(), Namespace: f.netns()})
}

// agentArgs are the words that the agent of a node is started with: what the server was told about nodes, but for what only
// one of them can have.
func (s *Machine) agentArgs(f further) []string {
	args := []string{"agent", "--server=https://" + s.Reachable().String(), "--data-dir=" + f.dir, "--node=" + f.name, "--resolv-conf=" + f.resolv()}
	say := func(name string, values ...string) {
		for _, v := range values {
			args = append(args, "--"+name+"="+v)
		}
	}
	for _, a := range s.link.Addresses(f.number) {
		say("node-ip", a.String())
	}
	for _, p := range s.ServiceCIDRs {
		say("service-cidr", p.String())
	}
	for _, p := range s.ClusterCIDRs() {
		say("cluster-cidr", p.String())
	}
	say("bin-dir", s.Node.BinDir)
	say("log-level", strings.ToLower(s.LogLevel.String()))
	for _, setting := range run.AgentSettings() {
		if !slices.Contains(notHanded(), setting.Name) {
			say(setting.Name, s.Said(setting.Name)...)
		}
	}
	return args
}

// notHanded are settings that further nodes do not get as they were said: they have their own, or there can be but one.
func notHanded() []string {
	return []string{"data-dir", "service-cidr", "cluster-cidr", "log-level", "bin-dir", "node", "node-ip", "container-runtime-endpoint", "pod-manifest-path", "manifest-url", "resolv-conf"}
}

// mayRemove says why a node must not be removed: it keeps data, and nobody has agreed to lose it.
func mayRemove(f further) error {
	if _, err := os.Stat(f.removalFile()); err == nil {
		return nil
	}
	d, err := f.data()
	if err != nil || d.IsEmpty() {
		return err
	}
	return fmt.Errorf("it keeps %s; \"proa up --nodes N --remove-data\" removes them with it", strings.Join(slices.Concat(d.Volumes, d.EmptyDirs), ", "))
}

// removeNode ends a node for good: its agent, its Node, its containers, its network and its files.
func (s *Machine) removeNode(ctx context.Context, f further) error {
	if _, err := stopAgent(ctx, f); err != nil {
		return err
	}
	err := s.Own().Delete(ctx, gr.Nodes, "", f.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := s.removeVolumes(ctx, f.name); err != nil {
		return err
	}
	s.Log().InfoContext(ctx, "a node is removed", "node", f.name)
	return purgeFurther(ctx, f, s.Log())
}

// removeVolumes deletes the PersistentVolumes whose folders go with a node, so that no claim is bound to a folder that a later node of
// the same name would make anew, and empty.
func (s *Machine) removeVolumes(ctx context.Context, node string) error {
	view, err := s.Own().View(ctx, gr.PersistentVolumes)
	if err == nil {
		err = view.Reach(ctx, 0)
	}
	if err != nil {
		return fmt.Errorf("find the volumes of the node: %w", err)
	}
	for o := range view.List("") {
		pv, ok := o.(*corev1.PersistentVolume)
		if !ok || pv.Annotations[localpath.ProvisionedBy] != localpath.Provisioner || pv.Annotations[localpath.Node] != node {
			continue
		}
		if err := s.removeVolume(ctx, pv); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the PersistentVolume %s: %w", pv.Name, err)
		}
	}
	return nil
}

// removeVolume deletes a PersistentVolume although a claim is bound to it: what it stood for is about to be gone.
func (s *Machine) removeVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	if err := s.Own().Delete(ctx, gr.PersistentVolumes, "", pv.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pv.UID}}); err != nil {
		return err
	}
	now, err := s.Own().Get(ctx, gr.PersistentVolumes, "", pv.Name, "")
	if err != nil {
		return err
	}
	now = now.DeepCopyObject().(kind.Object)
	now.SetFinalizers(nil)
	_, err = s.Own().Update(ctx, gr.PersistentVolumes, now, "")
	return err
}

// holderOf is the process that runs what is in a folder, see Hold; nil if none does.
func holderOf(dir string) (*subprocess.Process, error) {
	pid, err := run.Holder(dir)
	if err != nil || pid == 0 {
		return nil, err
	}
	p, err := subprocess.Hold(pid)
	if err != nil || p == nil {
		return nil, err
	}
	// Once it is held, look again: the number may have gone to another one in between.
	if now, err := run.Holder(dir); err != nil || now != pid {
		p.Release()
		return nil, err
	}
	return p, nil
}

// stopAgent ends the agent of a node, if it runs.
func stopAgent(ctx context.Context, f further) (stopped bool, err error) {
	p, err := holderOf(f.dir)
	if err != nil || p == nil {
		return false, err
	}
	defer p.Release()
	return true, p.Terminate(ctx, agentPatience)
}

// StopAgents ends the agents that a server which was killed has left running, and says of which nodes.
func StopAgents(ctx context.Context, dataDir string) (names []string, err error) {
	all, err := existing(dataDir)
	for _, f := range all {
		stopped, e := stopAgent(ctx, f)
		if stopped {
			names = append(names, f.name)
		}
		err = errors.Join(err, e)
	}
	return names, err
}

// purgeFurther removes everything that a further node has made.
func purgeFurther(ctx context.Context, f further, log *slog.Logger) error {
	// What the node has set in its own network it must not take back in ours, so it gets one if it has none any more.
	if err := netns.Make(f.netns()); err != nil {
		return err
	}
	if err := netns.Do(f.netns(), func() error { return PurgeNode(ctx, f.dir, log) }); err != nil {
		return err
	}
	if err := errors.Join(link.Unplug(f.netns()), netns.Remove(f.netns())); err != nil {
		return err
	}
	return os.RemoveAll(f.dir)
}

// PurgeNodes removes everything that the nodes of a data folder have made on this machine. The cluster must not be running.
func PurgeNodes(ctx context.Context, dataDir string, log *slog.Logger) error {
	all, err := existing(dataDir)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range all {
		if err := purgeFurther(ctx, f, log); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", f.name, err))
		}
	}
	return errors.Join(append(errs, purgeLink(dataDir), PurgeNode(ctx, dataDir, log))...)
}

func at(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }
