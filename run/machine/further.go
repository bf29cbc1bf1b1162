package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/localvolume"
	"proa.dev/network/nodebridge"
	"proa.dev/node/netns"
	"proa.dev/node/subprocess"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/machine/teardown"
	"proa.dev/run/settings"
)

// furtherNodes keeps the further nodes running until ctx ends, and removes those that are no longer wanted. If the
// number of nodes is not set, existing nodes stay as they are.
func (s *Machine) furtherNodes(ctx context.Context) error {
	if s.Nodes == 0 {
		<-ctx.Done()
		return nil
	}
	if err := teardown.ForbidDataRemoval(&s.Config.Config); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.Persist(ctx, "fewer-nodes", func() error { return s.fewerNodes(ctx) }) })
	if s.bridge == nil {
		<-ctx.Done()
		return nil
	}
	want := nodefolder.Wanted(&s.Config.Config)
	if _, server := s.nodeResolv(); server != "" {
		relay := &nodebridge.Relay{Listen: at(s.bridge.Addresses(1)[0], 53), Server: server, Log: s.Log(),
			Connections: s.ConnectionBudget()}
		wg.Go(func() { s.Persist(ctx, "node-names", func() error { return relay.Run(ctx) }) })
	}
	for _, f := range want {
		wg.Go(func() { s.keepAgent(ctx, f) })
	}
	for {
		if wait.Sleep(ctx, checkInterval) != nil {
			return nil
		}
		if err := nodebridge.Repair(*s.bridge); err != nil {
			s.Log().ErrorContext(ctx, "the bridge of the nodes cannot be repaired", "err", err)
		}
		if err := s.writeResolv(want); err != nil {
			s.Log().ErrorContext(ctx, "the resolv.conf of the nodes cannot be written", "err", err)
		}
	}
}

// fewerNodes removes the nodes that are no longer wanted, and the bridge with the last of them. It returns when ctx
// ends.
func (s *Machine) fewerNodes(ctx context.Context) error {
	nodes, err := nodefolder.Unwanted(&s.Config.Config)
	if err != nil {
		return err
	}
	for _, f := range nodes {
		e := mayRemove(f)
		if e == nil {
			e = s.removeNode(ctx, f)
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("remove the node %s: %w", f.Name, e))
		}
	}
	if err == nil && s.bridge == nil {
		err = teardown.PurgeBridge(s.DataDir)
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

const (
	// checkInterval is the time between checks of the bridge and of the interfaces attached to it.
	checkInterval = 30 * time.Second
	// steadyAfter is how long an agent must have run for the back-off to start again at the shortest pause.
	steadyAfter = time.Minute
)

// keepAgent runs the agent of a node and restarts it with back-off, until ctx ends. Then the agent goes on without a server, and the
// next server adopts it.
func (s *Machine) keepAgent(ctx context.Context, f nodefolder.Node) {
	backoff := wait.Backoff{First: 100 * time.Millisecond, Max: 10 * time.Second}
	for {
		begin := time.Now()
		err := s.RunPart(ctx, "agent of node "+f.Name, func() error { return s.runAgent(ctx, f) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > steadyAfter {
			backoff.Reset()
		}
		s.Log().ErrorContext(ctx, "the agent of a node has ended and is restarted", "node", f.Name, "err", err, "log", f.LogFile())
		if backoff.Sleep(ctx) != nil {
			return
		}
	}
}

// runAgent starts the agent of a node, or adopts the one that an earlier server has left running, and returns when it
// has ended, or when ctx ends.
func (s *Machine) runAgent(ctx context.Context, f nodefolder.Node) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return fmt.Errorf("create the folder of the node: %w", err)
	}
	if err := s.plug(f); err != nil {
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
	wg.Go(func() { subprocess.LimitLog(beside, f.LogFile(), subprocess.MaxLogBytes, s.Log()) })
	if f.Number == 1 {
		wg.Go(func() { s.renewAccounts(beside) })
	} else {
		wg.Go(func() { s.shareImages(beside, f) })
	}
	look := time.NewTicker(checkInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.Done:
			lines := strings.Split(subprocess.Tail(f.LogFile()), "\n")
			return fmt.Errorf("process %d has ended; its last words: %s", p.Pid, lines[len(lines)-1])
		case <-look.C:
			if err := s.plug(f); err != nil {
				s.Log().ErrorContext(ctx, "the interface of a node cannot be attached to the bridge", "node", f.Name, "err", err)
			}
		}
	}
}

// plug gives a further node its network namespace, and attaches it to the bridge.
func (s *Machine) plug(f nodefolder.Node) error {
	if f.Number == 1 {
		return nil
	}
	if err := netns.Make(f.NetNS()); err != nil {
		return err
	}
	if err := nodebridge.Plug(*s.bridge, f.Number, f.NetNS()); err != nil {
		return err
	}
	return s.writeResolv([]nodefolder.Node{f})
}

// adopt returns the agent that an earlier server has left running. An agent that was started with other settings is
// terminated.
func (s *Machine) adopt(ctx context.Context, f nodefolder.Node) (*subprocess.Process, error) {
	newAuthority, err := s.prepareCredentials(ctx, f)
	if err != nil {
		return nil, err
	}
	p, err := teardown.LockHolder(f.LockDir())
	if err != nil || p == nil {
		return nil, err
	}
	self, err := os.Executable()
	if err == nil && !newAuthority && p.Runs(append([]string{self}, s.agentArgs(f)...)) {
		s.Log().InfoContext(ctx, "the agent of a node is still running and is adopted", "node", f.Name, "pid", p.Pid)
		return p, nil
	}
	s.Log().InfoContext(ctx, "the agent of a node is another program or has other settings, and is replaced", "node", f.Name, "pid", p.Pid)
	defer p.Release()
	if f.Number == 1 && teardown.LeaveNode(ctx, f) {
		return nil, nil // it serves Ingresses until the next one does
	}
	return nil, p.Terminate(context.WithoutCancel(ctx), teardown.AgentStopTimeout)
}

// startAgent starts the agent of a node in its network namespace.
func (s *Machine) startAgent(f nodefolder.Node) (*subprocess.Process, error) {
	if f.Number > 1 {
		if err := shareArchives(nodefolder.ImageDir(s.DataDir), nodefolder.ImageDir(f.Dir)); err != nil {
			return nil, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return subprocess.Start(subprocess.Command{Program: self, Args: s.agentArgs(f), Log: f.LogFile(), Namespace: f.NetNS()})
}

// agentArgs returns the arguments with which the agent of a node is started: the settings of nodes that the server was
// given, except those that only the first node can have, which is on the network of the machine and serves Ingresses.
func (s *Machine) agentArgs(f nodefolder.Node) []string {
	url, isFirst, addresses := "https://"+s.Reachable().String(), f.Number == 1, s.Node.IPs
	if isFirst {
		url = s.URL()
	} else {
		addresses = s.bridge.Addresses(f.Number)
	}
	args := []string{"agent", "--server=" + url, "--data-dir=" + f.Dir, "--node=" + f.Name}
	say := func(name string, values ...string) {
		for _, v := range values {
			args = append(args, "--"+name+"="+v)
		}
	}
	if isFirst {
		args = append(args, "--beside-server")
	} else {
		say("resolv-conf", f.ResolvConf())
	}
	for _, a := range addresses {
		say("node-ip", a.String())
	}
	for _, p := range s.ServiceCIDRs {
		say("service-cidr", p.String())
	}
	for _, p := range s.ClusterCIDRs() {
		say("cluster-cidr", p.String())
	}
	if s.Node.BinDir != "" {
		say("bin-dir", s.Node.BinDir)
	}
	say("log-level", strings.ToLower(s.LogLevel.String()))
	for _, setting := range settings.ForAgents() {
		if !slices.Contains(settingsOfEach(), setting.Name) && (isFirst || !slices.Contains(settingsOfFirst(), setting.Name)) {
			say(setting.Name, s.Given(setting.Name)...)
		}
	}
	return args
}

// settingsOfEach lists the settings of which each node has its own value, and those that are passed on whether or not they were given.
func settingsOfEach() []string {
	return []string{"data-dir", "service-cidr", "cluster-cidr", "log-level", "bin-dir", "node", "node-ip"}
}

// settingsOfFirst lists the settings that only the first node can have.
func settingsOfFirst() []string {
	return append([]string{"container-runtime-endpoint", "pod-manifest-path", "manifest-url", "resolv-conf"}, settings.OfProxies()...)
}

// mayRemove returns an error if the node keeps data and the user has not agreed to lose it.
func mayRemove(f nodefolder.Node) error {
	if _, err := os.Stat(f.RemovalFile()); err == nil {
		return nil
	}
	d, err := teardown.DataOf(f)
	if err != nil || d.IsEmpty() {
		return err
	}
	return fmt.Errorf("it keeps %s; \"proa up --nodes N --remove-data\" removes them with it", strings.Join(slices.Concat(d.Volumes, d.EmptyDirs), ", "))
}

// removeNode removes a node for good: its agent, its Node, its containers, its network and its files.
func (s *Machine) removeNode(ctx context.Context, f nodefolder.Node) error {
	if _, err := teardown.StopAgent(ctx, f); err != nil {
		return err
	}
	err := s.OwnClient().Delete(ctx, gr.Nodes, "", f.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := s.removeVolumes(ctx, f.Name); err != nil {
		return err
	}
	s.Log().InfoContext(ctx, "a node is removed", "node", f.Name)
	return teardown.PurgeFurther(ctx, f, s.Log())
}

// removeVolumes deletes the PersistentVolumes whose folders are on a node, so that no claim stays bound to a folder
// that a later node of the same name would create empty.
func (s *Machine) removeVolumes(ctx context.Context, node string) error {
	view, err := s.OwnClient().View(ctx, gr.PersistentVolumes)
	if err == nil {
		err = view.Reach(ctx, 0)
	}
	if err != nil {
		return fmt.Errorf("find the volumes of the node: %w", err)
	}
	for o := range view.List("") {
		pv, ok := o.(*corev1.PersistentVolume)
		if !ok || pv.Annotations[localvolume.ProvisionedByAnnotation] != localvolume.Provisioner ||
			pv.Annotations[localvolume.NodeAnnotation] != node {
			continue
		}
		if err := s.removeVolume(ctx, pv); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the PersistentVolume %s: %w", pv.Name, err)
		}
	}
	return nil
}

// removeVolume deletes a PersistentVolume although a claim is bound to it: its folder is about to be removed.
func (s *Machine) removeVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	if err := s.OwnClient().Delete(ctx, gr.PersistentVolumes, "", pv.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pv.UID}}); err != nil {
		return err
	}
	now, err := s.OwnClient().Get(ctx, gr.PersistentVolumes, "", pv.Name, "")
	if err != nil {
		return err
	}
	now = now.DeepCopyObject().(kind.Object)
	now.SetFinalizers(nil)
	_, err = s.OwnClient().Update(ctx, gr.PersistentVolumes, now, "")
	return err
}

func at(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }
