// Package autoscalermetrics is where HorizontalPodAutoscalers get their metrics from: the metrics APIs of this server or of
// aggregated ones, read with the permissions of the controller.
package autoscalermetrics

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/control/podautoscaler"
	"proa.dev/kinds/lib/gr"
	"proa.dev/run/aggregatedresources"
	"proa.dev/server"
	"proa.dev/server/aggregation"
	"proa.dev/server/apidiscovery"
	"proa.dev/server/authz"
	"proa.dev/server/localclient"
)

// Controller is the name of the controller that reads metrics.
const Controller = "horizontal-pod-autoscaler"

// Source reads metrics as the controller.
type Source struct {
	// User is the identity of the controller.
	User     user.Info
	Pipeline *server.Server
	// Aggregator reaches other API servers; nil if there are none.
	Aggregator *aggregation.Aggregator
	Authorizer authz.Authorizer
	// Resources returns the resources of a kind, of this server or of aggregated ones.
	Resources func(schema.GroupKind) ([]schema.GroupResource, error)
}

// Metrics returns the metrics as the controller reads them.
func (s *Source) Metrics() podautoscaler.Metrics {
	from := podautoscaler.Sources{Usage: s.podMetrics, Resources: s.Resources}
	if s.Aggregator != nil {
		transport := s.Aggregator.RoundTripper(s.User)
		from.Versions = s.remoteGroup
		from.Send = func(ctx context.Context, r *podautoscaler.Request) (*podautoscaler.Answer, error) {
			if err := s.authorize(ctx, r); err != nil {
				return nil, err
			}
			return aggregatedresources.GetMetrics(ctx, transport, r.URL())
		}
	}
	return podautoscaler.Served(from)
}

// podMetrics returns the metrics of Pods that this server serves itself.
func (s *Source) podMetrics(ctx context.Context, namespace string, selector labels.Selector) ([]metricsv1beta1.PodMetrics, error) {
	all, err := localclient.List(ctx, s.Pipeline, s.User, gr.PodMetrics, namespace, selector)
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
func (s *Source) remoteGroup(name string) (out []string) {
	if g := apidiscovery.AddGroup(nil, name, s.Aggregator.Versions()); g != nil {
		for _, v := range g.Versions {
			out = append(out, v.Version)
		}
	}
	return out
}

// authorize returns an error if the controller is not authorized to send a request to an aggregated API server.
func (s *Source) authorize(ctx context.Context, r *podautoscaler.Request) error {
	a := authz.Attributes{
		User: s.User, Verb: r.Verb(), IsResource: true,
		Group: r.Group, Version: r.Version, Namespace: r.Namespace, Resource: r.Resource, Name: r.Name, Subresource: r.Subresource,
	}
	decision, reason, err := s.Authorizer.Authorize(ctx, a)
	switch {
	case decision == authz.Allow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	return authz.Forbidden(&a, reason)
}
