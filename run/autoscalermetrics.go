package run

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/control/podautoscaler"
	"proa.dev/kinds/lib/gr"
	"proa.dev/run/aggregatedresources"
	"proa.dev/server/apidiscovery"
	"proa.dev/server/authz"
	"proa.dev/server/localclient"
)

// autoscaler is the name of the controller that reads metrics.
const autoscaler = "horizontal-pod-autoscaler"

// autoscalerMetrics returns the source of metrics for autoscalers: the metrics APIs, of this server or of an aggregated one,
// read with the permissions of the controller.
func (s *Server) autoscalerMetrics() podautoscaler.Metrics {
	from := podautoscaler.Sources{Usage: s.podMetrics, Resources: s.resourcesOfKindAnywhere}
	if s.aggregator != nil {
		transport := s.aggregator.RoundTripper(account(autoscaler))
		from.Versions = s.remoteGroup
		from.Send = func(ctx context.Context, r *podautoscaler.Request) (*podautoscaler.Answer, error) {
			if err := s.authorizeMetricsRequest(ctx, r); err != nil {
				return nil, err
			}
			return aggregatedresources.GetMetrics(ctx, transport, r.URL())
		}
	}
	return podautoscaler.Served(from)
}

// podMetrics returns the metrics of Pods that this server serves itself.
func (s *Server) podMetrics(ctx context.Context, namespace string, selector labels.Selector) ([]metricsv1beta1.PodMetrics, error) {
	all, err := localclient.List(ctx, s.pipeline, account(autoscaler), gr.PodMetrics, namespace, selector)
	if err != nil {
		return nil, err
	}
	out := make([]metricsv1beta1.PodMetrics, len(all))
	for i, o := range all {
		out[i] = *o.(*metricsv1beta1.PodMetrics)
	}
	return out, nil
}

// remoteGroup returns the versions of a group that aggregated API servers serve, in the order of discovery.
func (s *Server) remoteGroup(name string) (out []string) {
	if g := apidiscovery.AddGroup(nil, name, s.aggregator.Versions()); g != nil {
		for _, v := range g.Versions {
			out = append(out, v.Version)
		}
	}
	return out
}

// authorizeMetricsRequest returns an error if the controller is not authorized to send a request to an aggregated API server.
func (s *Server) authorizeMetricsRequest(ctx context.Context, r *podautoscaler.Request) error {
	a := authz.Attributes{
		User: account(autoscaler), Verb: r.Verb(), IsResource: true,
		Group: r.Group, Version: r.Version, Namespace: r.Namespace, Resource: r.Resource, Name: r.Name, Subresource: r.Subresource,
	}
	decision, reason, err := s.authorizers.Authorize(ctx, a)
	switch {
	case decision == authz.Allow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	return authz.Forbidden(&a, reason)
}

// resourcesOfKindAnywhere returns the resources of a kind, of this server or else of aggregated ones.
func (s *Server) resourcesOfKindAnywhere(gk schema.GroupKind) ([]schema.GroupResource, error) {
	out, err := s.resourcesOfKind(gk)
	if err == nil {
		return out, nil
	}
	for _, d := range s.aggregated().Defs() {
		if d.GroupVersionKind.GroupKind() == gk {
			return []schema.GroupResource{d.Resource()}, nil
		}
	}
	return nil, err
}
