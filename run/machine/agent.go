package machine

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/internal/connlimit"
	"proa.dev/kinds"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/nodereport"
	"proa.dev/network/firstanswer"
	"proa.dev/node"
	"proa.dev/node/nodestatus"
	"proa.dev/node/tracereport"
	"proa.dev/run/goprocess"
	"proa.dev/run/machine/agentjoin"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/parthealth"
	"proa.dev/run/settings"
)

// RunAgent runs a node of a cluster whose server is in another process, until ctx ends. It calls onReady when the node
// has joined, and release when it has left the node to another agent, for which it then waits.
func RunAgent(ctx context.Context, config settings.AgentConfig, log *slog.Logger, onReady, release func()) error {
	c := agentjoin.Agent{AgentConfig: config}
	limitMemory(ctx, &c, log)
	dir := filepath.Join(nodefolder.AgentDir(c.DataDir), "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the node: %w", err)
	}
	apiServers, err := readServers(nodefolder.ServersFile(c.DataDir), c.Servers)
	if err != nil {
		return err
	}
	c.UseServerThatAnswers(ctx)
	known, err := c.Authorities(ctx, dir)
	if err != nil {
		return err
	}
	cert, joined, err := c.Join(ctx, dir, known.Pool(), log)
	if err != nil {
		return err
	}
	speaks := func() *tls.Config {
		return &tls.Config{RootCAs: known.Pool(), GetClientCertificate: cert.Present, MinVersion: tls.VersionTLS12}
	}
	connect := func() remote.Config {
		return remote.Config{URL: c.Server, Servers: apiServers.all, Log: log, Dial: agentjoin.DialFrom(c.Node.IPs),
			TLS: &tls.Config{RootCAs: known.Pool(), MinVersion: tls.VersionTLS12}, Roots: known.Pool}
	}
	refused := &refusedWatches{node: c.Node.Name, log: log, failed: map[schema.GroupResource]error{}}
	requests := remote.NewMetrics()
	connections := connlimit.New(connlimit.ForProcess(goprocess.MachineMemory("/proc/meminfo")), log)
	kubelet, err := remote.New(ctx, remote.Config{
		URL: c.Server, Servers: apiServers.all, Agent: "proa-agent", Log: log, TLS: speaks(), Roots: known.Pool,
		Dial: agentjoin.DialFrom(c.Node.IPs), Refused: refused.set,
		Metrics: requests, Resources: append(kinds.All(), nodereport.Kind(nil)),
	})
	if err != nil {
		return err
	}
	defer kubelet.Close()
	cert.Issue = nodestatus.RequestCertificates(func() client.Client { return kubelet },
		certificatesv1.KubeAPIServerClientKubeletSignerName)
	cert.Changed = kubelet.Renew
	if err := nodestatus.CheckFree(ctx, kubelet, nodestatus.Config{Name: c.Node.Name, Data: nodefolder.AgentDir(c.DataDir)},
		log); nodestatus.IsTaken(err) {
		return err
	}
	l := &agentjoin.SettingsReader{Client: kubelet, File: nodefolder.SettingsFile(c.DataDir), Log: log}
	learned, err := l.Read(ctx)
	if err != nil {
		return err
	}
	if _, err := c.WithClusterSettings(learned); err != nil {
		return err
	}
	go func() {
		if joined && agentjoin.IsShortLived(cert) {
			c.ReplaceFirstCertificate(ctx, kubelet, cert, log)
		}
		_ = cert.Run(ctx) // its only error is that ctx has ended
	}()
	reports := tracereport.New(c.Node.Name, kubelet, log)
	go reports.Run(ctx)
	persist := func(ctx context.Context, name string, part func() error) { parthealth.Persist(ctx, log, name, part) }
	go persist(ctx, "trust", func() error { return known.Follow(ctx, kubelet, log, kubelet.Renew) })
	go persist(ctx, "servers", func() error {
		behind, err := kubelet.View(ctx, gr.EndpointSlices)
		if err != nil {
			return err
		}
		return apiServers.follow(ctx, behind, kubelet.Reconnect)
	})
	answers := firstanswer.New(firstanswer.Config{Record: reports.Record, Log: log})
	counts := append(node.ClientCertificateMetrics(cert), requests, connections.Collector())
	ports := newSockets(handoverSocket(c.DataDir), log)
	var wg sync.WaitGroup
	defer wg.Wait()
	proxyCtx, stopProxies := context.WithCancel(ctx)
	defer stopProxies()
	nodeCtx, leave := context.WithCancel(ctx)
	defer leave()
	if c.BesideServer {
		serving := &proxies{Agent: &c, node: kubelet, connect: connect, record: reports.Record, answers: answers, persist: persist,
			connections: connections, sockets: ports, log: log}
		counts = append(counts, serving.newMetrics()...)
		wg.Go(func() { serving.run(proxyCtx) })
		go persist(proxyCtx, "hand-over", func() error { return ports.handOver(proxyCtx, handoverSocket(c.DataDir)) })
	}
	if onReady != nil {
		onReady()
	}
	err = c.RunWithSettings(nodeCtx, l, learned, func(ctx context.Context, c *agentjoin.Agent) {
		p := agentHost{
			NodeConfig: c.Node, dataDir: c.DataDir, client: &roleClient{kubelet, c.Node.Name}, serviceCIDRs: c.ServiceCIDRs,
			clusterCIDRs: c.ClusterCIDRs(), find: c.LocalAddress,
			issue:     nodestatus.RequestCertificates(func() client.Client { return kubelet }, certificatesv1.KubeletServingSignerName),
			clientCAs: known.Pool, log: log, servers: &servers{c.Server, speaks, known}, persist: persist, refused: refused,
			record: reports.Record, answers: answers, bridge: bridgeOf(c), connections: connections,
		}
		if c.BesideServer {
			p.leave = leave
		}
		p.numbers.add(counts)
		persist(ctx, "node", func() error { return p.run(ctx) })
	})
	if err == nil && nodeCtx.Err() != nil && ctx.Err() == nil {
		release()
		ports.awaitSuccessor(ctx, c.DataDir)
	}
	return err
}
