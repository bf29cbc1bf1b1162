package run

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/client"
	"proa.dev/kinds/apiregistration"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/aggregation"
	"proa.dev/server/extensionclient"
	"proa.dev/server/openapi"
)

// openAggregator returns the proxy to aggregated API servers. They authenticate this server by its front-proxy
// certificate.
func (s *Server) openAggregator() *aggregation.Aggregator {
	return aggregation.New(aggregation.Config{Log: s.log, Clients: extensionclient.New(extensionclient.Config{
		Resolve: extensionclient.Resolver(s.state), Dial: s.agents.Dial,
		Certificate: func() (*tls.Certificate, error) {
			c := s.pki.FrontProxyClient().TLS()
			return &c, nil
		},
	})})
}

// followAPIServices updates the aggregator each time an APIService of another server changes, until ctx ends. Every
// server does so, not only the leader, because every one proxies requests.
func (s *Server) followAPIServices(ctx context.Context, view client.View) error {
	for e := range view.Events(ctx) {
		if e.Gap || aggregation.IsRemote(e.Object) || e.Old != nil && aggregation.IsRemote(e.Old) {
			s.aggregator.Update(ctx, view.List(""))
		}
	}
	return ctx.Err()
}

// openAPIServices reads the APIServices, so that requests are proxied from the first one on.
func (s *Server) openAPIServices(ctx context.Context) (client.View, error) {
	view, err := s.OwnClient().View(ctx, gr.APIServices)
	if err == nil {
		err = view.Reach(ctx, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("read the APIServices: %w", err)
	}
	s.aggregator.Update(ctx, view.List(""))
	return view, nil
}

// servedVersions returns the built-in group versions.
func (s *Server) servedVersions() (out []schema.GroupVersion) {
	for _, d := range s.builtIn {
		if gv := d.GroupVersion(); !slices.Contains(out, gv) {
			out = append(out, gv)
		}
	}
	return out
}

// builtInAPIServices returns the APIServices of the built-in group versions.
func (s *Server) builtInAPIServices() []*apiregistrationv1.APIService {
	return apiregistration.Local(s.servedVersions())
}

// checkAPIService returns an error if the server of an APIService is not available.
func (s *Server) checkAPIService(ctx context.Context, service *apiregistrationv1.APIService) error {
	return s.aggregator.Check(ctx, service)
}

// remoteDescriptions returns the OpenAPI documents of aggregated API servers.
func (s *Server) remoteDescriptions() (out []openapi.Group) {
	for _, d := range s.aggregator.Descriptions() {
		out = append(out, openapi.Group{Group: d.Group, Version: d.Version, Tag: d.Tag, Document: func() ([]byte, error) {
			return d.Document(context.Background()) // it has a timeout of its own, and its result is shared by all callers
		}, DocumentV2: func() ([]byte, error) { return d.DocumentV2(context.Background()) }})
	}
	return out
}

// openExtensions returns the clients for webhooks. As upstream's by default, they show no client certificate.
func (s *Server) openExtensions() *extensionclient.Clients {
	return extensionclient.New(extensionclient.Config{Resolve: extensionclient.Resolver(s.state), Dial: s.agents.Dial})
}
