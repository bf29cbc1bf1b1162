package run

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	netpod "proa.dev/network/pod"
	"proa.dev/network/service"
	"proa.dev/node"
	"proa.dev/node/cgroup"
	"proa.dev/node/container"
	"proa.dev/node/runtime"
	"proa.dev/node/self"
)

// nodeClient speaks to the cluster as a node does.
func (s *Server) nodeClient() client.Client {
	return s.front.Client(&user.DefaultInfo{Name: "system:node:" + s.Node.Name, Groups: []string{user.NodesGroup, user.AllAuthenticated}})
}

// runNode runs the node agent of this process until ctx ends.
func (s *Server) runNode(ctx context.Context) error {
	config, err := s.nodeConfig()
	if err != nil {
		return err
	}
	agent, err := node.Start(ctx, config)
	if err != nil {
		return err
	}
	leave, err := s.Join(config.Name, agent.Inside(AgentCaller()))
	if err != nil {
		return err
	}
	defer leave()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { s.persist(ctx, "pod-network", func() error { return s.podNetwork(ctx, config) }) })
	wg.Go(func() { s.persist(ctx, "service-proxy", func() error { return s.serviceProxy(ctx, config.Name) }) })
	return agent.Run(ctx)
}

// serviceProxy makes Services reachable on the node.
func (s *Server) serviceProxy(ctx context.Context, name string) error {
	c := s.front.Client(&user.DefaultInfo{Name: user.KubeProxy, Groups: []string{user.AllAuthenticated}})
	config := service.Config{NodeName: name, ServiceCIDRs: s.ServiceCIDRs, Table: servicesOf(s.DataDir), Log: s.log}
	for _, r := range s.podRanges() {
		config.ClusterCIDRs = append(config.ClusterCIDRs, r.CIDR)
	}
	var err error
	for on, to := range map[schema.GroupResource]*client.View{gr.Services: &config.Services, gr.EndpointSlices: &config.Slices, gr.Nodes: &config.Nodes} {
		if *to, err = c.View(ctx, on); err != nil {
			return err
		}
	}
	events := client.NewRecorder(c, "kube-proxy", s.log).On(name)
	config.Complain = func(about kind.Object, reason, message string) {
		events.Event(about, corev1.EventTypeWarning, reason, "%s", message)
	}
	p, err := service.New(config)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { events.Run(ctx) })
	return p.Run(ctx)
}

// servicesOf names the rules of Services, apart for each cluster.
func servicesOf(dataDir string) string {
	if c := networkOf(dataDir, "", nil); c.Table != "" {
		return c.Table + "-services"
	}
	return ""
}

// nodeConfig is what the agent is told.
func (s *Server) nodeConfig() (node.Config, error) {
	n, dir := s.Node, nodeDir(s.DataDir)
	bin, err := n.binDir()
	if err != nil {
		return node.Config{}, err
	}
	ips := n.IPs
	if len(ips) == 0 {
		ips = []netip.Addr{s.reachable().Addr()}
	}
	dns := n.ClusterDNS
	if len(dns) == 0 {
		for _, p := range s.ServiceCIDRs {
			dns = append(dns, tenth(p))
		}
	}
	return node.Config{
		Config: self.Config{
			Name: n.Name, Addresses: ips, Labels: n.Labels, Taints: n.Taints, MaxPods: n.MaxPods, Port: int32(n.Port), Version: Version().GitVersion, Data: dir,
			SystemReserved: n.SystemReserved, KubeReserved: n.KubeReserved,
		},
		Users: container.Users{MaxPods: n.MaxPods}, Logins: n.ImageCredentials, LoginsBin: n.ImageCredentialsBin,
		Eviction: n.eviction(), ImageHigh: n.ImageHigh, ImageLow: n.ImageLow,
		Client: s.nodeClient(), Dir: dir, Runtime: n.Runtime, Images: imageDir(s.DataDir),
		Own:    ownRuntime(s.DataDir, bin, n),
		Driver: cgroup.Driver(orElse(n.CgroupDriver, string(cgroup.Cgroupfs))), PodPids: int64(n.PodPids),
		DNS:        container.DNS{Servers: dns, Domain: n.ClusterDomain, ResolvConf: container.FindResolvConf()},
		StaticPods: n.StaticPods, StaticURL: n.StaticURL, UnsafeSysctls: n.UnsafeSysctls,
		Issue: s.issue, ClientCAs: func() *x509.CertPool { return s.pki.CA().Pool }, Log: s.log,
	}, nil
}

// ownRuntime is how the node's own runtime is set up.
func ownRuntime(dataDir, bin string, n NodeConfig) runtime.Config {
	return runtime.Config{
		DataDir: runtimeDir(dataDir), BinDir: bin, CNIBinDirs: []string{bin, "/opt/cni/bin"}, CNIConfDir: cniDir(dataDir), CgroupRoot: cgroup.RootFor(nodeDir(dataDir)),
		SystemdCgroup: n.CgroupDriver == string(cgroup.Systemd), RegistryDirs: n.RegistryDirs,
	}
}

func orElse(v, other string) string {
	if v == "" {
		return other
	}
	return v
}

func cniDir(dataDir string) string { return filepath.Join(nodeDir(dataDir), "cni") }

// tenth is the address of a range of Services that the cluster's DNS has.
func tenth(p netip.Prefix) netip.Addr {
	ip := p.Masked().Addr()
	for range 10 {
		ip = ip.Next()
	}
	return ip
}

// issue signs what the agent of this process serves with: the authority is at hand, and needs no request through the API.
func (s *Server) issue(_ context.Context, request []byte, _ crypto.Signer) ([]byte, error) {
	block, _ := pem.Decode(request)
	if block == nil {
		return nil, errors.New("the request for a certificate is not PEM")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, err
	}
	now := time.Now()
	cert, err := s.pki.CA().Sign(&x509.Certificate{
		Subject: csr.Subject, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses, NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, csr.PublicKey, now)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), nil
}

// podNetwork gives the Pods of the node their network, once the node knows which.
func (s *Server) podNetwork(ctx context.Context, c node.Config) error {
	cidrs, err := podCIDRs(ctx, c.Client, c.Name)
	if err != nil {
		return err
	}
	config := networkOf(s.DataDir, c.Name, s.log)
	config.PodCIDRs = cidrs
	for _, r := range s.podRanges() {
		config.ClusterCIDRs = append(config.ClusterCIDRs, r.CIDR)
	}
	n, err := netpod.New(ctx, config)
	if err != nil {
		return err
	}
	if err := n.WriteConf(cniDir(s.DataDir)); err != nil {
		return err
	}
	return n.Serve(ctx)
}

// networkOf names the network of the node of a data folder. Nodes of several clusters on one machine must not share names.
func networkOf(dataDir, name string, log *slog.Logger) netpod.Config {
	c := netpod.Config{DataDir: nodeDir(dataDir), NodeName: name, Log: log}
	if dataDir != DefaultDataDir() {
		sum := sha256.Sum256([]byte(dataDir))
		c.Bridge, c.Table = "proa"+hex.EncodeToString(sum[:4]), "proa-"+hex.EncodeToString(sum[:4])
	}
	return c
}

// podCIDRs waits until the Node has its networks.
func podCIDRs(ctx context.Context, c client.Client, name string) ([]netip.Prefix, error) {
	view, err := c.Part(ctx, gr.Nodes, client.Scope{Name: name})
	if err != nil {
		return nil, err
	}
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

// PurgeNode removes everything that the node of a data folder has made on this machine. The cluster must not be running.
func PurgeNode(ctx context.Context, dataDir string, log *slog.Logger) error {
	dir := nodeDir(dataDir)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	bin, err := (&NodeConfig{}).binDir()
	if err != nil {
		return err
	}
	errs := []error{runtime.Purge(ctx, ownRuntime(dataDir, bin, NodeConfig{}), log)}
	errs = append(errs, node.Purge(ctx, dir, log), netpod.Purge(networkOf(dataDir, "", log)), service.Purge(servicesOf(dataDir)))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
