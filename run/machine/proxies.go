package machine

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/hop"
	"proa.dev/internal/connlimit"
	"proa.dev/internal/wait"
	"proa.dev/kinds"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/firstanswer"
	"proa.dev/network/gateway"
	"proa.dev/network/httpproxy"
	"proa.dev/network/ingress"
	"proa.dev/run/bootstraproles"
	"proa.dev/run/filewatch"
	"proa.dev/run/machine/agentjoin"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// proxyAccounts returns the service accounts under which the first node of a server serves Ingresses and Gateways.
func proxyAccounts(c *settings.Config) (out []string) {
	if c.ServesIngresses() {
		out = append(out, bootstraproles.IngressAccount)
	}
	if c.ServesGateways() {
		out = append(out, bootstraproles.GatewayAccount)
	}
	return out
}

// accountFile returns the file of the client certificate and key of an account that serves Ingresses or Gateways.
func accountFile(dataDir, account string) string {
	return filepath.Join(nodefolder.AgentDir(dataDir), "pki", account+".pem")
}

// proxies serve Ingresses and Gateways on the first node of a server, each under a service account of its own: they read Secrets, and
// nodes must not.
type proxies struct {
	*agentjoin.Agent
	// node is the client of the node, through which is read what every node reads.
	node client.Client
	// connect returns the configuration of a client without credentials.
	connect func() remote.Config
	record  func(hop.Record)
	answers *firstanswer.Watcher
	persist func(ctx context.Context, name string, part func() error)
	// connections counts the connections of all listeners of the process.
	connections *connlimit.Budget
	sockets     *sockets
	log         *slog.Logger
	// metrics has those of Ingresses and of the routes of Gateways, by account.
	metrics map[string]*httpproxy.Metrics
	// unsynced is how many accounts do not serve yet what there is, and synced has the others.
	unsynced atomic.Int64
	synced   sync.Map
}

// newMetrics makes the metrics of what is served.
func (p *proxies) newMetrics() (out []prometheus.Collector) {
	p.metrics = map[string]*httpproxy.Metrics{}
	words := map[string]string{bootstraproles.IngressAccount: "ingress", bootstraproles.GatewayAccount: "route"}
	for _, account := range proxyAccounts(&p.Config) {
		p.metrics[account] = httpproxy.NewMetrics(words[account])
		out = append(out, p.metrics[account])
	}
	return out
}

// run serves until ctx ends.
func (p *proxies) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	accounts := proxyAccounts(&p.Config)
	p.unsynced.Store(int64(len(accounts)))
	if len(accounts) == 0 {
		p.sockets.serving()
	}
	for _, account := range accounts {
		serve := p.serveIngresses
		if account == bootstraproles.GatewayAccount {
			serve = p.serveGateways
		}
		wg.Go(func() {
			p.persist(ctx, account, func() error {
				ctx, stop := context.WithCancel(ctx)
				defer stop()
				c, err := p.client(ctx, account)
				if err != nil {
					return err
				}
				defer c.Close()
				return serve(ctx, c)
			})
		})
	}
}

// noteSynced returns a function that is called when an account serves what there is. When the last one does, the former agent is not
// needed any more.
func (p *proxies) noteSynced(account string) func() {
	return func() {
		if _, again := p.synced.LoadOrStore(account, true); !again && p.unsynced.Add(-1) == 0 {
			p.sockets.serving()
		}
	}
}

// serveIngresses serves Ingresses until ctx ends.
func (p *proxies) serveIngresses(ctx context.Context, c *proxyClient) error {
	config := ingress.Config{
		NodeName: p.Node.Name, Class: p.Ingress.Class, HTTPPort: p.Ingress.HTTPPort, HTTPSPort: p.Ingress.HTTPSPort,
		Ranges: slices.Concat(p.ServiceCIDRs, p.ClusterCIDRs()), Writer: c, Metrics: p.metrics[bootstraproles.IngressAccount],
		Record: p.record, Answered: p.answers.Answered, Connections: p.connections,
		Listen: p.sockets.listen,
		Synced: p.noteSynced(bootstraproles.IngressAccount), Drain: p.sockets.drain, Log: p.log,
	}
	var err error
	for on, to := range map[schema.GroupResource]*client.View{
		ingress.Ingresses(): &config.Ingresses, ingress.Classes(): &config.Classes, gr.Services: &config.Services,
		gr.EndpointSlices: &config.Slices, gr.Secrets: &config.Secrets, gr.Nodes: &config.Nodes,
	} {
		if *to, err = c.View(ctx, on); err != nil {
			return err
		}
	}
	events := client.NewRecorder(c, bootstraproles.IngressAccount, p.log).ForNode(p.Node.Name)
	config.RecordEvent = warner(events)
	server, err := ingress.New(config)
	if err != nil {
		return err
	}
	return runWithEvents(ctx, events, server.Run)
}

// serveGateways serves Gateways until ctx ends, while their definitions are installed.
func (p *proxies) serveGateways(ctx context.Context, c *proxyClient) error {
	return gateway.Run(ctx, gateway.Config{
		NodeName: p.Node.Name, Class: p.Ingress.GatewayClass, Ranges: slices.Concat(p.ServiceCIDRs, p.ClusterCIDRs()),
		Client: c, Define: c.Define, Metrics: p.metrics[bootstraproles.GatewayAccount], Record: p.record, Answered: p.answers.Answered,
		Connections: p.connections, Listen: p.sockets.listen,
		Synced: p.noteSynced(bootstraproles.GatewayAccount), Drain: p.sockets.drain, Log: p.log,
	})
}

// proxyClient is the client of an account. What nodes may read it reads through the views that the agent of the node has anyway.
type proxyClient struct {
	*remote.Client
	node client.Client
}

// View opens the view of a resource.
func (c *proxyClient) View(ctx context.Context, on schema.GroupResource) (client.View, error) {
	if on == gr.Services || on == gr.EndpointSlices {
		return c.node.View(ctx, on)
	}
	return c.Client.View(ctx, on)
}

// renewalPeriod is how often it is looked whether the server has renewed a certificate.
const renewalPeriod = time.Minute

// client returns a client with the certificate of an account, which the server has made and renews.
func (p *proxies) client(ctx context.Context, account string) (*proxyClient, error) {
	file := accountFile(p.DataDir, account)
	var pair atomic.Pointer[tls.Certificate]
	read := func() error {
		now, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			return fmt.Errorf("the certificate of %s: %w", account, err)
		}
		pair.Store(&now)
		return nil
	}
	changes := filewatch.New(file, read)
	if err := read(); err != nil {
		return nil, err
	}
	config := p.connect()
	config.Agent, config.Resources = account, kinds.All()
	config.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Load(), nil }
	c, err := remote.New(ctx, config)
	if err != nil {
		return nil, err
	}
	go func() {
		for wait.Sleep(ctx, renewalPeriod) == nil {
			if !changes.Changed() {
				continue
			}
			if err := changes.Apply(); err != nil {
				p.log.ErrorContext(ctx, "a certificate of the proxy cannot be used", "err", err)
				continue
			}
			c.Renew()
		}
	}()
	return &proxyClient{c, p.node}, nil
}
