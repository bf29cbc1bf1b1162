package run

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control/garbagecollector"
	"proa.dev/control/podautoscaler"
	"proa.dev/kinds/kind"
	"proa.dev/run/aggregatedresources"
	"proa.dev/run/autoscalermetrics"
	"proa.dev/run/servedresources"
)

// Resources returns every served version of every resource, including custom ones.
func (s *Server) Resources() []*kind.Def {
	if s.state == nil { // only the names of the controllers are wanted
		return s.builtIn
	}
	return s.state.Defs()
}

// builtInResources returns the built-in namespaced resources that have all of some verbs.
func (s *Server) builtInResources(verbs []string) []schema.GroupResource {
	return servedresources.Namespaced(s.builtIn, verbs)
}

// customResources returns a function that lists the current custom namespaced resources that have all of some verbs.
func (s *Server) customResources(verbs []string) func() []schema.GroupResource {
	return func() []schema.GroupResource {
		custom := slices.DeleteFunc(slices.Clone(s.Resources()), func(d *kind.Def) bool { return !d.IsCustom() })
		return servedresources.Namespaced(custom, verbs)
	}
}

// occupancy tells the garbage collector which resources have objects.
func (s *Server) occupancy() garbagecollector.Occupancy {
	if s.state == nil {
		return garbagecollector.Occupancy{}
	}
	return garbagecollector.Occupancy{Has: s.state.Occupied, Changed: s.state.NewlyOccupied()}
}

// onlyOccupied leaves out resources without objects: looking for objects would open a cache for each of them, which is not
// closed again.
func (s *Server) onlyOccupied(resources func() []schema.GroupResource) func() []schema.GroupResource {
	return func() []schema.GroupResource {
		return slices.DeleteFunc(resources(), func(on schema.GroupResource) bool { return s.state != nil && !s.state.Occupied(on) })
	}
}

// isBuiltIn tells whether a resource is built in, and not one of a CustomResourceDefinition.
func (s *Server) isBuiltIn(on schema.GroupResource) bool {
	return slices.ContainsFunc(s.builtIn, func(d *kind.Def) bool { return d.Resource() == on })
}

// scalable returns the resource of a kind, and whether it has the subresource scale.
func (s *Server) scalable(gvk schema.GroupVersionKind) (on schema.GroupResource, scales bool, err error) {
	return servedresources.Scalable(s.Resources(), gvk)
}

// resourcesOfKind returns the resources of a kind, whatever their version.
func (s *Server) resourcesOfKind(gk schema.GroupKind) ([]schema.GroupResource, error) {
	return servedresources.OfKind(s.Resources(), gk)
}

// autoscalerMetrics returns the source of metrics for autoscalers.
func (s *Server) autoscalerMetrics() podautoscaler.Metrics {
	from := &autoscalermetrics.Source{User: Account(autoscalermetrics.Controller), Pipeline: s.pipeline, Aggregator: s.aggregator,
		Authorizer: s.authorizers, Resources: func(gk schema.GroupKind) ([]schema.GroupResource, error) {
			return servedresources.OfKindAnywhere(s.Resources(), s.aggregated().Defs(), gk)
		}}
	return from.Metrics()
}

// aggregated returns the resources of aggregated API servers.
func (s *Server) aggregated() aggregatedresources.Resources {
	return aggregatedresources.Resources{Aggregator: s.aggregator, Lifetime: s.viewContext,
		IsLocal: func(on schema.GroupResource) bool { return s.state.Def(on) != nil }}
}

// withAggregated adds the namespaced resources of aggregated API servers to others.
func (s *Server) withAggregated(resources func() []schema.GroupResource) func() []schema.GroupResource {
	return func() []schema.GroupResource {
		return slices.Concat(resources(), servedresources.Namespaced(s.aggregated().Defs(), []string{"list", "watch", "delete"}))
	}
}

// viewOpener returns the function by which a controller opens views. That of a controller of every resource waits for aggregated API
// servers a little.
func (s *Server) viewOpener(controller string) func(context.Context, schema.GroupResource) (client.View, error) {
	c := s.controllerClient(controller)
	if a, ok := c.(*aggregatedresources.Client); ok {
		return a.Open
	}
	return c.View
}

// allResources returns the resources of this server and of aggregated ones.
func (s *Server) allResources() []*kind.Def { return s.aggregated().AddTo(s.Resources()) }

// controllersOfEveryResource are the controllers that act on objects of every resource.
func controllersOfEveryResource() []string {
	return []string{"generic-garbage-collector", "namespace-controller", "resourcequota-controller"}
}
