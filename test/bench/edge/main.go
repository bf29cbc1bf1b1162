// Command edge is the last hop of proa alone: the rules of Services and the names of the cluster, as an agent runs them on a
// node, in a process of its own, so that they can be measured beside kube-proxy and CoreDNS. With -ingress it serves Ingresses
// instead, as a server with a node does, and with -plain it is a proxy of a few lines to compare that with.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/dns"
	"proa.dev/network/ingress"
	"proa.dev/network/service"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the cluster")
	name := flag.String("node", "", "the name of the node")
	address := flag.String("dns", "10.96.0.10", "the address at which names are answered")
	services := flag.String("service-cidr", "10.96.0.0/16", "the network of Services")
	pods := flag.String("cluster-cidr", "10.244.0.0/16", "the network of Pods")
	port := flag.Int("ingress", 0, "serve Ingresses at this port, and nothing else")
	servers := flag.String("plain", "", "with -ingress: hand every request to one of these servers, ADDR:PORT,..., instead")
	flag.Parse()
	if *servers != "" {
		return runReverseProxy(ctx, *port, *servers)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := dial(ctx, *kubeconfig, log)
	if err != nil {
		return err
	}
	defer c.Close()
	if *port != 0 {
		return serveIngresses(ctx, c, *name, *port, log)
	}
	ip, err1 := netip.ParseAddr(*address)
	serviceCIDR, err2 := netip.ParsePrefix(*services)
	clusterCIDR, err3 := netip.ParsePrefix(*pods)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	rules := service.Config{
		NodeName: *name, NodeAddresses: []netip.Addr{ip}, ServiceCIDRs: []netip.Prefix{serviceCIDR},
		ClusterCIDRs: []netip.Prefix{clusterCIDR}, Log: log,
	}
	names := dns.Config{Addresses: []netip.Addr{ip}, CIDRs: []netip.Prefix{serviceCIDR, clusterCIDR}, Log: log}
	for on, to := range map[schema.GroupResource][]*client.View{
		gr.Services: {&rules.Services, &names.Services}, gr.EndpointSlices: {&rules.Slices, &names.Slices}, gr.Nodes: {&rules.Nodes},
		gr.Namespaces: {&names.Namespaces},
	} {
		if err := open(ctx, c, on, to...); err != nil {
			return err
		}
	}
	proxy, err := service.New(rules)
	if err != nil {
		return err
	}
	server, err := dns.New(names)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { cancel(proxy.Run(ctx)) })
	wg.Go(func() { cancel(server.Serve(ctx)) })
	wg.Wait()
	return context.Cause(ctx)
}

// open gives a view of a resource to who needs it.
func open(ctx context.Context, c client.Client, on schema.GroupResource, to ...*client.View) error {
	view, err := c.View(ctx, on)
	for _, v := range to {
		*v = view
	}
	return err
}

// serveIngresses serves Ingresses.
func serveIngresses(ctx context.Context, c client.Client, node string, port int, log *slog.Logger) error {
	config := ingress.Config{NodeName: node, Class: "proa", HTTPPort: port, Writer: c, Log: log}
	for on, to := range map[schema.GroupResource]*client.View{
		ingress.Ingresses(): &config.Ingresses, ingress.Classes(): &config.Classes, gr.Services: &config.Services,
		gr.EndpointSlices: &config.Slices, gr.Secrets: &config.Secrets, gr.Nodes: &config.Nodes,
	} {
		if err := open(ctx, c, on, to); err != nil {
			return err
		}
	}
	server, err := ingress.New(config)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// dial is the client that agents use.
func dial(ctx context.Context, kubeconfig string, log *slog.Logger) (*remote.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	var trust *tls.Config
	if trust, err = rest.TLSConfigFor(config); err != nil {
		return nil, err
	}
	return remote.New(ctx, remote.Config{URL: config.Host, TLS: trust, Agent: "edge", Log: log})
}
