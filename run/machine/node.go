package machine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/internal/buildinfo"
	"proa.dev/internal/connlimit"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/dns"
	"proa.dev/network/firstanswer"
	"proa.dev/network/localports"
	"proa.dev/network/networkpolicy"
	"proa.dev/network/nodebridge"
	"proa.dev/network/noderoutes"
	netpod "proa.dev/network/podnetwork"
	"proa.dev/network/service"
	"proa.dev/node"
	"proa.dev/node/cgroup"
	"proa.dev/node/container"
	"proa.dev/node/nodestatus"
	"proa.dev/run"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/parthealth"
	"proa.dev/run/settings"
)

// agentHost has what a node agent needs beside its settings.
type agentHost struct {
	settings.NodeConfig
	dataDir string
	// client has the identity of the node.
	client                     client.Client
	serviceCIDRs, clusterCIDRs []netip.Prefix
	// find returns the node's address if none is set.
	find      func() (netip.Addr, error)
	issue     nodestatus.Issuer
	clientCAs func() *x509.CertPool
	// servers are the API servers to which the agent opens tunnels.
	servers *servers
	// record sends to the server how long the node works on Pods and rules.
	record func(hop.Record)
	// answers records the first answers of Pods on the node.
	answers *firstanswer.Watcher
	// connections counts the connections of all listeners of the process.
	connections *connlimit.Budget
	guard       *networkpolicy.Guard // what the pod network asks about policies
	log         *slog.Logger
	// numbers are the metrics of the parts beside the agent.
	numbers partMetrics
	// health tracks which of the parts work.
	health parthealth.Tracker
	// refused has the watches that the server forbids.
	refused *refusedWatches
	// names is the DNS server of the node; nil until it accepts queries.
	names atomic.Pointer[dns.Server]
	// podConfig is the configuration of the Pod network; nil while it does not run.
	podConfig atomic.Pointer[netpod.Config]
	// bridge connects the nodes of this machine, if there are several; nil for all but the first.
	bridge *nodebridge.Config
	// leave ends the node, and leaves it to another agent of this machine; nil if the agent does not know how.
	leave func()
	// persist runs a part and restarts it when it has ended.
	persist func(ctx context.Context, name string, part func() error)
}

// run runs the agent until ctx ends.
func (p *agentHost) run(ctx context.Context) error {
	config, err := p.config()
	if err != nil {
		return err
	}
	if err := nodefolder.DropMovedRuntime(ctx, p.dataDir, config.OwnRuntime, p.log); err != nil {
		return err
	}
	if err := nodefolder.StoreRuntimeConfig(p.dataDir, config.OwnRuntime); err != nil {
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
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { p.answers.Run(ctx) })
	p.health.OnChange(agent.RefreshStatus)
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
		part("service-proxy", func() error { return p.serviceProxy(ctx, agent) })
	}
	part("control", func() error { return p.control(ctx, agent) })
	wg.Go(func() {
		p.persist(ctx, "dns", func() error {
			return p.health.RunListener(ctx, "dns", func(listening func()) error { return p.serveDNS(ctx, listening) })
		})
	})
	wg.Go(func() { p.persist(ctx, "tunnels", func() error { return p.tunnels(ctx) }) })
	return agent.Run(ctx)
}

// viewTarget is a resource, and where its view is stored.
type viewTarget struct {
	on   schema.GroupResource
	view *client.View
}

// openViews opens the views of a part in a fixed order, so that a failure is always reported for the same resource.
func (p *agentHost) openViews(ctx context.Context, all ...viewTarget) (err error) {
	for _, x := range all {
		if *x.view, err = p.client.View(ctx, x.on); err != nil {
			return err
		}
	}
	return nil
}

// serviceProxy implements Services on the node until ctx ends.
func (p *agentHost) serviceProxy(ctx context.Context, agent *node.Agent) error {
	config := service.Config{NodeName: p.Name, NodeAddresses: p.dns(), ServiceCIDRs: p.serviceCIDRs, ClusterCIDRs: p.clusterCIDRs,
		Table: nodefolder.ServiceTable(p.dataDir), Record: p.record, Expect: p.answers.Expect, HasPod: agent.HasPod,
		Answers: p.isAnswered, Connections: p.connections, Log: p.log}
	p.traffic(&config)
	err := p.openViews(ctx, viewTarget{gr.Services, &config.Services}, viewTarget{gr.EndpointSlices, &config.Slices},
		viewTarget{gr.Nodes, &config.Nodes})
	if err != nil {
		return err
	}
	events := client.NewRecorder(p.client, "kube-proxy", p.log).ForNode(p.Name)
	config.RecordEvent = warner(events)
	proxy, err := service.New(config)
	if err != nil {
		return err
	}
	if err := keepPrefixes(nodefolder.ServiceNetworksFile(p.dataDir), p.serviceCIDRs); err != nil {
		return err
	}
	defer p.numbers.add(proxy.Collectors())()
	local := localports.New(localports.Config{Services: config.Services, Balancers: config.Balancers, Reserved: config.ReservedPorts,
		Connections: p.connections, Log: p.log})
	return runWithEvents(ctx, events, func(ctx context.Context) error {
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		wg.Go(func() { local.Run(ctx) })
		return proxy.Run(ctx)
	})
}

// mesh maintains the routes and tunnels between the Pods of this node and those of others until ctx ends.
func (p *agentHost) mesh(ctx context.Context) error {
	nodes, err := p.client.View(ctx, gr.Nodes)
	if err != nil {
		return err
	}
	config := nodefolder.NodeRoutes(p.dataDir)
	config.NodeName, config.Nodes, config.Log = p.Name, nodes, p.log
	if config.ID, err = meshID(ctx, p.client); err != nil {
		return err
	}
	config.Networks, config.Services = p.clusterCIDRs, p.serviceCIDRs
	events := client.NewRecorder(p.client, "proa-mesh", p.log).ForNode(p.Name)
	config.RecordEvent = warner(events)
	config.Publish = p.annotate
	if err := keepPrefixes(nodefolder.RoutesFile(p.dataDir), p.clusterCIDRs); err != nil {
		return err
	}
	m, err := noderoutes.New(config)
	if err != nil {
		return err
	}
	return runWithEvents(ctx, events, m.Run)
}

// meshID returns the number that distinguishes the tunnels of this cluster from those of others. All its nodes derive
// the same one, whatever their data folders are.
func meshID(ctx context.Context, c client.Client) (int, error) {
	ns, err := c.Get(ctx, gr.Namespaces, "", metav1.NamespaceSystem, "")
	if err != nil {
		return 0, fmt.Errorf("read the id of the cluster: %w", err)
	}
	sum := sha256.Sum256([]byte(ns.GetUID()))
	return 1 + (int(sum[0])<<16+int(sum[1])<<8+int(sum[2]))%(1<<24-1), nil
}

// serveDNS runs the DNS server of the node until ctx ends. It calls listening when the server accepts queries.
func (p *agentHost) serveDNS(ctx context.Context, listening func()) error {
	config := dns.Config{Domain: p.ClusterDomain, Addresses: p.dns(), CIDRs: append(slices.Clone(p.serviceCIDRs), p.clusterCIDRs...),
		ResolvConf: resolvConf(&p.NodeConfig), Stubs: p.Stubs, Connections: p.connections, Log: p.log}
	err := p.openViews(ctx, viewTarget{gr.Services, &config.Services}, viewTarget{gr.EndpointSlices, &config.Slices},
		viewTarget{gr.Namespaces, &config.Namespaces})
	if err != nil {
		return err
	}
	s, err := dns.New(config)
	if err != nil {
		return err
	}
	defer p.numbers.add(s.Collectors())()
	s.Listening = func() {
		p.names.Store(s)
		listening()
	}
	defer p.names.Store(nil)
	var text []string
	for _, ip := range config.Addresses {
		text = append(text, ip.String())
	}
	if err := os.WriteFile(nodefolder.DNSAddressFile(p.dataDir), []byte(strings.Join(text, "\n")), 0o600); err != nil {
		return err
	}
	return s.Serve(ctx)
}

// isAnswered tells whether the DNS server of the node answers for a Service.
func (p *agentHost) isAnswered(namespace, name string) bool {
	s := p.names.Load()
	return s != nil && s.Answers(namespace, name)
}

// dns returns the addresses of the DNS servers of Pods.
func (p *agentHost) dns() []netip.Addr {
	out := p.ClusterDNS
	if len(out) == 0 {
		for _, r := range p.serviceCIDRs {
			out = append(out, settings.DNSAddressIn(r))
		}
	}
	return out
}

// config returns the configuration of the agent.
func (p *agentHost) config() (node.Config, error) {
	dir := nodefolder.AgentDir(p.dataDir)
	bin, err := nodefolder.BinDir(&p.NodeConfig, p.dataDir)
	if err != nil {
		return node.Config{}, err
	}
	ends, err := p.ShutdownPeriods()
	if err != nil {
		return node.Config{}, err
	}
	return node.Config{
		Config: nodestatus.Config{
			Name: p.Name, Addresses: p.IPs, FindAddress: p.find, Labels: p.Labels, Taints: p.Taints, ProviderID: p.ProviderID,
			Cloud: p.Cloud, MaxPods: p.MaxPods, Port: int32(p.Port), Version: run.Version().GitVersion,
			Build: buildinfo.Read().Name(), Data: dir,
			SystemReserved: p.SystemReserved, KubeReserved: p.KubeReserved,
		},
		Client: p.client, Dir: dir, Runtime: p.Runtime, OwnRuntime: nodefolder.RuntimeConfig(p.dataDir, bin, p.NodeConfig),
		Images: nodefolder.ImageDir(p.dataDir),
		Driver: cgroup.Driver(cmp.Or(p.CgroupDriver, string(cgroup.Cgroupfs))), PodPids: int64(p.PodPids),
		Users: container.Users{MaxPods: p.MaxPods}, CredentialProviders: p.ImageCredentials, CredentialProviderBin: p.ImageCredentialsBin,
		Verify: node.Verify(p.ImageVerify), AllowedImages: p.ImageAllowed, ResourceManagers: node.ResourceManagers(p.Align), Shutdown: ends,
		Eviction:      evictionSettings(&p.NodeConfig),
		ParallelPulls: p.Pulls, LogSize: p.LogSize, LogFiles: p.LogFiles, SeccompDefault: p.SeccompDefault, Swap: p.Swap,
		ImageHigh: p.ImageHigh, ImageLow: p.ImageLow,
		DNS:        container.DNS{Servers: p.dns(), Domain: p.ClusterDomain, ResolvConf: resolvConf(&p.NodeConfig)},
		StaticPods: p.StaticPods, StaticURL: p.StaticURL, UnsafeSysctls: p.UnsafeSysctls,
		Issue: p.issue, ClientCAs: p.clientCAs, Record: p.record, Metrics: &p.numbers, Log: p.log,
		Checks: p.checks(), Connections: p.connections,
		RunPart: func(ctx context.Context, name string, part func() error) {
			p.persist(ctx, name, func() error { return p.health.Run(ctx, name, part) })
		},
	}, nil
}

// checks returns the checks that must pass for the node to be ready.
func (p *agentHost) checks() []nodestatus.Check {
	out := []nodestatus.Check{{Name: "a part of the node", Run: p.checkParts},
		{Name: "what the node knows of the cluster", Run: p.refused.check}, {Name: "the Pod network", Run: p.checkPodNetwork}}
	if p.bridge != nil {
		out = append(out, nodestatus.Check{Name: "the network between the nodes", Run: func() error { return nodebridge.Check(*p.bridge) }})
	}
	return out
}

// checkPodNetwork returns an error if packets to the node's Pods do not reach their bridge. Until the Pod network has started there
// is nothing to check: the container runtime reports that.
func (p *agentHost) checkPodNetwork() error {
	if config := p.podConfig.Load(); config != nil {
		return netpod.Check(*config)
	}
	return nil
}

// podNetwork runs the network of the node's Pods, once the node knows its ranges.
func (p *agentHost) podNetwork(ctx context.Context, agent *node.Agent) error {
	cidrs, err := podCIDRs(ctx, p.client, p.Name, func(err error) { p.health.Set("pod-cidr", err) })
	if err != nil {
		return err
	}
	config := nodefolder.PodNetwork(p.dataDir, p.Name, p.log)
	config.Tunnel = nodefolder.Tunnel(p.dataDir)
	config.PodCIDRs, config.ClusterCIDRs, config.Live, config.Guard = cidrs, p.clusterCIDRs, agent.Sandboxes, p.guard
	config.Trace = agent.TraceNetwork
	n, err := netpod.New(ctx, config)
	if err != nil {
		return err
	}
	if err := n.WriteConf(nodefolder.CNIDir(p.dataDir)); err != nil {
		return err
	}
	if err := netpod.CheckOverlap(config); err != nil {
		p.log.WarnContext(ctx, "another interface of this machine is in the network of the node's Pods", "err", err)
	}
	p.podConfig.Store(&config)
	defer p.podConfig.Store(nil)
	return n.Serve(ctx)
}

// podCIDRs waits until the Node has its networks. It calls report with an error if that takes long, and with nil at the
// end.
func podCIDRs(ctx context.Context, c client.Client, name string, report func(error)) ([]netip.Prefix, error) {
	view, err := c.Part(ctx, gr.Nodes, client.Scope{Name: name})
	if err != nil {
		return nil, err
	}
	reported := make(chan struct{})
	late := time.AfterFunc(parthealth.WorksAfter, func() {
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
