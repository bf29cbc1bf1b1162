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
	"proa.dev/kinds/gr"
	"proa.dev/server/aggregate"
	"proa.dev/server/extension"
	"proa.dev/server/openapi"
)

// openAggregator makes the ways to aggregated API servers. They know this server by its certificate for speaking in the name of others.
func (s *Server) openAggregator() *aggregate.Aggregator {
	return aggregate.New(aggregate.Config{Log: s.log, Clients: extension.New(extension.Config{
		Resolve: extension.Resolver(s.state), Dial: s.agents.Dial,
		Certificate: func() (*tls.Certificate, error) {
			c := s.pki.FrontProxyClient().TLS()
			return &c, nil
		},
	})})
}

// followAPIServices tells the aggregator about the APIServices, each time one of another server changes, until ctx ends. Every server does so,
// since every one serves requests.
func (s *Server) followAPIServices(ctx context.Context, view client.View) error {
	for e := range view.Events(ctx) {
		if e.Gap || aggregate.IsRemote(e.Object) || e.Old != nil && aggregate.IsRemote(e.Old) {
			s.aggregator.Update(ctx, view.List(""))
		}
	}
	return ctx.Err()
}

// openAPIServices reads the APIServices, so that from the first request on those are passed on that other servers answer.
func (s *Server) openAPIServices(ctx context.Context) (client.View, error) {
	view, err := s.Own().View(ctx, gr.APIServices)
	if err == nil {
		err = view.Reach(ctx, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("read the APIServices: %w", err)
	}
	s.aggregator.Update(ctx, view.List(""))
	return view, nil
}

// servedVersions are the group versions that are built in.
func (s *Server) servedVersions() (out []schema.GroupVersion) {
	for _, d := range s.defs {
		if gv := d.GroupVersion(); !slices.Contains(out, gv) {
			out = append(out, gv)
		}
	}
	return out
}

// builtInAPIServices are the APIServices of the built-in group versions.
func (s *Server) builtInAPIServices() []*apiregistrationv1.APIService {
	return apiregistration.Local(s.servedVersions())
}

// checkAPIService asks the server of an APIService whether it is there.
func (s *Server) checkAPIService(ctx context.Context, service *apiregistrationv1.APIService) error {
	return s.aggregator.Check(ctx, service)
}

// remoteDescriptions are the OpenAPI documents of aggregated servers.
func (s *Server) remoteDescriptions() (out []openapi.Group) {
	for _, d := range s.aggregator.Descriptions() {
		out = append(out, openapi.Group{Group: d.Group, Version: d.Version, Tag: d.Tag, Document: func() ([]byte, error) {
			return d.Document(context.Background()) // bounded in time by itself; whoever asks shares it with others
		}, DocumentV2: func() ([]byte, error) { return d.DocumentV2(context.Background()) }})
	}
	return out
}
