package machine

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/network/dns"
	"proa.dev/network/mesh"
	netpod "proa.dev/network/pod"
	"proa.dev/network/policy"
	"proa.dev/network/service"
	"proa.dev/node"
	"proa.dev/node/cgroup"
	"proa.dev/node/container"
	"proa.dev/node/nodestatus"
	"proa.dev/node/runtime"
	"proa.dev/run"
)

// place is where a node agent lives: what it needs beside its settings, in the process of the server or in its own.
type place struct {
	run.NodeConfig
	dataDir string
	// client speaks as the node.
	client                     client.Client
	serviceCIDRs, clusterCIDRs []netip.Prefix
	// find finds the node's address where none is set.
	find      func() (netip.Addr, error)
	issue     nodestatus.Issuer
	clientCAs func() *x509.CertPool
	// join leads the server's requests for the node to a handler; nil where they come over the network.
	join func(*node.Agent) (leave func(), err error)
	// servers are where tunnels lead that the agent opens; nil in the process of the server.
	servers *servers
	// record keeps what the node spent on Pods; nil where the records are in another process.
	record func(hop.Record)
	guard  *policy.Guard // what the pod network asks about policies
	log    *slog.Logger
	// numbers are those of the parts beside the agent.
	numbers numbers
	// health knows which of the parts work.
	health run.PartHealth
	// refused knows the watches that the server forbids; nil in the process of the server.
	refused *refusedWatches
	// persist runs a part again when it has ended.
	persist func(ctx context.Context, name string, part func() error)
}

// runNode runs the node agent of the server's process until ctx ends.
func (s *Machine) runNode(ctx context.Context) error {
	who := &user.DefaultInfo{Name: "system:node:" + s.Node.Name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	p := place{
		NodeConfig: s.Node, dataDir: s.DataDir, client: s.Client(who),
		serviceCIDRs: s.ServiceCIDRs, clusterCIDRs: s.ClusterCIDRs(), find: func() (netip.Addr, error) { return s.Reachable().Addr(), nil },
		issue: s.issue, clientCAs: func() *x509.CertPool { return s.CA().Pool }, log: s.Log(), persist: s.Persist,
		join:   func(a *node.Agent) (func(), error) { return s.Join(s.Node.Name, a.Inside(run.AgentCaller())) },
		record: s.Record,
	}
	return p.run(ctx)
}

// run runs the agent until ctx ends.
func (p *place) run(ctx context.Context) error {
	config, err := p.config()
	if err != nil {
		return err
	}
	if err := dropMovedRuntime(ctx, p.dataDir, config.Own, p.log); err != nil {
		return err
	}
	if err := keepRuntime(p.dataDir, config.Own); err != nil {
		return err
	}
	// Processes of Pods with users of their own pass through it; nothing in it is for them to read.
	if err := os.Chmod(p.dataDir, 0o711); err != nil { //nolint:gosec // G302: see above
		return fmt.Errorf("let Pods pass through the data folder: %w", err)
	}
	if err := nodestatus.CheckFree(ctx, p.client, config.Config, p.log); err != nil {
		return err
	}
	agent, err := node.Start(ctx, config)
	if err != nil {
		return err
	}
	if p.join != nil {
		leave, err := p.join(agent)
		if err != nil {
			return err
		}
		defer leave()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p.health.OnChange(agent.Poke)
	part := func(name string, work func() error) {
		wg.Go(func() { p.persist(ctx, name, func() error { return p.health.Run(ctx, name, work) }) })
	}
	if p.CNIConf == "" {
		if err := p.policies(ctx, &wg); err != nil {
			return err
		}
		part("pod-network", func() error { return p.podNetwork(ctx, agent) })
		part("mesh", func() error { return p.mesh(ctx) })
	}
	if !p.NoProxy {
		part("service-proxy", func() error { return p.serviceProxy(ctx) })
	}
	part("control", func() error { return p.control(ctx, agent) })
	wg.Go(func() {
		p.persist(ctx, "dns", func() error {
			return p.health.RunListener(ctx, "dns", func(listening func()) error { return p.names(ctx, listening) })
		})
	})
	if p.servers != nil {
		wg.Go(func() { p.persist(ctx, "tunnels", func() error { return p.tunnels(ctx) }) })
	}
	return agent.Run(ctx)
}

// into is a resource, and where its view belongs.
type into struct {
	on   schema.GroupResource
	view *client.View
}

// openViews opens the views of a part in the order in which they are given, so that it fails in the same way each time.
func (p *place) openViews(ctx context.Context, all ...into) (err error) {
	for _, x := range all {
		if *x.view, err = p.client.View(ctx, x.on); err != nil {
			return err
		}
	}
	return nil
}

// serviceProxy makes Services reachable on the node.
func (p *place) serviceProxy(ctx context.Context) error {
	config := service.Config{NodeName: p.Name, Answers: p.dns(), ServiceCIDRs: p.serviceCIDRs, ClusterCIDRs: p.clusterCIDRs, Table: servicesOf(p.dataDir), Log: p.log}
	p.traffic(&config)
	err := p.openViews(ctx, into{gr.Services, &config.Services}, into{gr.EndpointSlices, &config.Slices}, into{gr.Nodes, &config.Nodes})
	if err != nil {
		return err
	}
	events := client.NewRecorder(p.client, "kube-proxy", p.log).On(p.Name)
	config.Complain = func(about kind.Object, reason, message string) {
		events.Event(about, corev1.EventTypeWarning, reason, "%s", message)
	}
	proxy, err := service.New(config)
	if err != nil {
		return err
	}
	defer p.numbers.add(proxy.Collectors())()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { events.Run(ctx) })
	return proxy.Run(ctx)
}

// mesh connects the Pods of the node with those of others.
func (p *place) mesh(ctx context.Context) error {
	nodes, err := p.client.View(ctx, gr.Nodes)
	if err != nil {
		return err
	}
	config := meshOf(p.dataDir)
	config.NodeName, config.Nodes, config.Log = p.Name, nodes, p.log
	if config.ID, err = meshID(ctx, p.client); err != nil {
		return err
	}
	config.Networks, config.Services = p.clusterCIDRs, p.serviceCIDRs
	events := client.NewRecorder(p.client, "proa-mesh", p.log).On(p.Name)
	config.Complain = func(about kind.Object, reason, message string) {
		events.Event(about, corev1.EventTypeWarning, reason, "%s", message)
	}
	config.Publish = p.annotate
	if err := keepPrefixes(meshFile(p.dataDir), p.clusterCIDRs); err != nil {
		return err
	}
	m, err := mesh.New(config)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { events.Run(ctx) })
	return m.Run(ctx)
}

// meshOf names the ways to other nodes, apart for each cluster.
func meshOf(dataDir string) mesh.Config {
	c := networkOf(dataDir, "", nil)
	if c.Table == "" {
		return mesh.Config{Alone: true} // others have other numbers, see below
	}
	sum := sha256.Sum256([]byte(dataDir))
	// Routes are told apart by a number that has one byte; the first hundred are those of others. Two clusters on one machine may
	// happen to have the same.
	return mesh.Config{Table: c.Table + "-nodes", Device: "pv" + hex.EncodeToString(sum[:4]), Protocol: 100 + int(sum[0])%80, Alone: !othersHere(dataDir)}
}

// meshID tells the tunnels of this cluster from those of others. All its nodes must agree about it, wherever their folders are.
func meshID(ctx context.Context, c client.Client) (int, error) {
	ns, err := c.Get(ctx, gr.Namespaces, "", metav1.NamespaceSystem, "")
	if err != nil {
		return 0, fmt.Errorf("read the id of the cluster: %w", err)
	}
	sum := sha256.Sum256([]byte(ns.GetUID()))
	return 1 + (int(sum[0])<<16+int(sum[1])<<8+int(sum[2]))%(1<<24-1), nil
}

// names answers the names of the cluster on the node.
// listening is called when it can be asked.
func (p *place) names(ctx context.Context, listening func()) error {
	config := dns.Config{Domain: p.ClusterDomain, Addresses: p.dns(), CIDRs: append(slices.Clone(p.serviceCIDRs), p.clusterCIDRs...), ResolvConf: resolvConf(&p.NodeConfig), Stubs: p.Stubs, Listening: listening, Log: p.log}
	err := p.openViews(ctx, into{gr.Services, &config.Services}, into{gr.EndpointSlices, &config.Slices}, into{gr.Namespaces, &config.Namespaces})
	if err != nil {
		return err
	}
	s, err := dns.New(config)
	if err != nil {
		return err
	}
	defer p.numbers.add(s.Collectors())()
	var text []string
	for _, ip := range config.Addresses {
		text = append(text, ip.String())
	}
	if err := os.WriteFile(namesFile(p.dataDir), []byte(strings.Join(text, "\n")), 0o600); err != nil {
		return err
	}
	return s.Serve(ctx)
}

// dns are the addresses at which Pods ask for names.
func (p *place) dns() []netip.Addr {
	out := p.ClusterDNS
	if len(out) == 0 {
		for _, r := range p.serviceCIDRs {
			out = append(out, run.NamesAt(r))
		}
	}
	return out
}

// servicesOf names the rules of Services, apart for each cluster.
func servicesOf(dataDir string) string {
	if c := networkOf(dataDir, "", nil); c.Table != "" {
		return c.Table + "-services"
	}
	return ""
}

// config is what the agent is told.
func (p *place) config() (node.Config, error) {
	dir := nodeDir(p.dataDir)
	bin, err := binDir(&p.NodeConfig, p.dataDir)
	if err != nil {
		return node.Config{}, err
	}
	ends, err := p.ShutdownPeriods()
	if err != nil {
		return node.Config{}, err
	}
	return node.Config{
		Config: nodestatus.Config{
			Name: p.Name, Addresses: p.IPs, Find: p.find, Labels: p.Labels, Taints: p.Taints, ProviderID: p.ProviderID, Cloud: p.Cloud, MaxPods: p.MaxPods, Port: int32(p.Port), Version: run.Version().GitVersion, Data: dir,
			SystemReserved: p.SystemReserved, KubeReserved: p.KubeReserved,
		},
		Client: p.client, Dir: dir, Runtime: p.Runtime, Own: ownRuntime(p.dataDir, bin, p.NodeConfig), Images: imageDir(p.dataDir),
		Driver: cgroup.Driver(cmp.Or(p.CgroupDriver, string(cgroup.Cgroupfs))), PodPids: int64(p.PodPids),
		Users: container.Users{MaxPods: p.MaxPods}, Logins: p.ImageCredentials, LoginsBin: p.ImageCredentialsBin,
		Verify: node.Verify(p.ImageVerify), AllowedImages: p.ImageAllowed, Align: node.Align(p.Align), Shutdown: ends, Eviction: eviction(&p.NodeConfig),
		Pulls: p.Pulls, LogSize: p.LogSize, LogFiles: p.LogFiles, SeccompDefault: p.SeccompDefault, Swap: p.Swap,
		ImageHigh: p.ImageHigh, ImageLow: p.ImageLow,
		DNS:        container.DNS{Servers: p.dns(), Domain: p.ClusterDomain, ResolvConf: resolvConf(&p.NodeConfig)},
		StaticPods: p.StaticPods, StaticURL: p.StaticURL, UnsafeSysctls: p.UnsafeSysctls,
		Issue: p.issue, ClientCAs: p.clientCAs, Record: p.record, Numbers: &p.numbers, Log: p.log,
		Checks: p.checks(),
	}, nil
}

// checks are those without which the node is not ready.
func (p *place) checks() []nodestatus.Check {
	out := []nodestatus.Check{{Name: "a part of the node", Fn: p.checkParts}}
	if p.refused != nil {
		out = append(out, nodestatus.Check{Name: "what the node knows of the cluster", Fn: p.refused.check})
	}
	return out
}

// ownRuntime is how the node's own runtime is set up.
func ownRuntime(dataDir, bin string, n run.NodeConfig) runtime.Config {
	return runtime.Config{
		DataDir: runtimeDir(dataDir), BinDir: bin, CNIBinDirs: append([]string{bin, "/opt/cni/bin"}, n.CNIBins...), CNIConfDir: cmp.Or(n.CNIConf, cniDir(dataDir)), CgroupRoot: cgroup.RootFor(nodeDir(dataDir)),
		SystemdCgroup: n.CgroupDriver == string(cgroup.Systemd), RegistryDirs: n.RegistryDirs,
	}
}

func cniDir(dataDir string) string { return filepath.Join(nodeDir(dataDir), "cni") }

// issue signs what the agent of this process serves with, and vouch what those that it starts speak with: the authority is at
// hand, and needs no request through the API.
func (s *Machine) issue(_ context.Context, request []byte, _ crypto.Signer) ([]byte, error) {
	return s.Sign(request, x509.ExtKeyUsageServerAuth)
}

func (s *Machine) vouch(_ context.Context, request []byte, _ crypto.Signer) ([]byte, error) {
	return s.Sign(request, x509.ExtKeyUsageClientAuth)
}

// podNetwork gives the Pods of the node their network, once the node knows which.
func (p *place) podNetwork(ctx context.Context, agent *node.Agent) error {
	cidrs, err := podCIDRs(ctx, p.client, p.Name, func(err error) { p.health.Set("pod-cidr", err) })
	if err != nil {
		return err
	}
	config := networkOf(p.dataDir, p.Name, p.log)
	config.Tunnel = cmp.Or(meshOf(p.dataDir).Device, mesh.UsualDevice)
	config.PodCIDRs, config.ClusterCIDRs, config.Live, config.Guard = cidrs, p.clusterCIDRs, agent.Sandboxes, p.guard
	n, err := netpod.New(ctx, config)
	if err != nil {
		return err
	}
	if err := n.WriteConf(cniDir(p.dataDir)); err != nil {
		return err
	}
	return n.Serve(ctx)
}

// networkOf names the network of the node of a data folder. Nodes of several clusters on one machine must not share names.
func networkOf(dataDir, name string, log *slog.Logger) netpod.Config {
	c := netpod.Config{DataDir: nodeDir(dataDir), NodeName: name, Log: log}
	if dataDir != run.DefaultDataDir() {
		sum := sha256.Sum256([]byte(dataDir))
		c.Bridge, c.Table = "proa"+hex.EncodeToString(sum[:4]), "proa-"+hex.EncodeToString(sum[:4])
	}
	return c
}

// podCIDRs waits until the Node has its networks. report is told when that takes long, and nil at the end.
func podCIDRs(ctx context.Context, c client.Client, name string, report func(error)) ([]netip.Prefix, error) {
	view, err := c.Part(ctx, gr.Nodes, client.Scope{Name: name})
	if err != nil {
		return nil, err
	}
	reported := make(chan struct{})
	late := time.AfterFunc(run.WorksAfter, func() {
		defer close(reported)
		report(fmt.Errorf("the Node %s has no spec.podCIDRs, from which its Pods get addresses; the controller manager gives them with --allocate-node-cidrs and --cluster-cidr", name))
	})
	defer func() {
		if !late.Stop() {
			<-reported
		}
		report(nil)
	}()
	for ev := range view.Events(ctx) {
		n, ok := ev.Object.(*corev1.Node)
		if !ok || ev.Deleted || len(n.Spec.PodCIDRs) == 0 {
			continue
		}
		var out []netip.Prefix
		for _, text := range n.Spec.PodCIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("the network %q of node %s: %w", text, name, err)
			}
			out = append(out, p)
		}
		return out, nil
	}
	return nil, context.Cause(ctx)
}

// namesFile remembers the addresses that were put on the machine to answer names at.
func namesFile(dataDir string) string { return filepath.Join(nodeDir(dataDir), "dns-addresses") }

func purgeNames(dataDir string) error {
	data, err := os.ReadFile(namesFile(dataDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []netip.Addr
	for _, text := range strings.Fields(string(data)) {
		if ip, err := netip.ParseAddr(text); err == nil {
			all = append(all, ip)
		}
	}
	return dns.Purge(all)
}

// PurgeNode removes everything that the node of a data folder has made on this machine. The cluster must not be running.
func PurgeNode(ctx context.Context, dataDir string, log *slog.Logger) error {
	dir := nodeDir(dataDir)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	own, err := keptRuntime(dataDir)
	if err != nil {
		return err
	}
	errs := []error{runtime.Purge(ctx, own, log)}
	errs = append(errs, node.Purge(ctx, dir, log), netpod.Purge(networkOf(dataDir, "", log)), service.Purge(servicesOf(dataDir)), policy.Purge(policiesOf(dataDir)), purgeMesh(dataDir), purgeNames(dataDir))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
