// Package aggregatedresources lets controllers work with the resources of aggregated API servers. The garbage collector and the
// controllers of namespaces and quotas list, watch and delete them as they do with the resources of this server, and autoscalers read
// metrics from them.
package aggregatedresources

import (
	"context"
	"fmt"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/server/aggregation"
)

// Resources are the resources of aggregated API servers. Without an Aggregator there are none.
type Resources struct {
	Aggregator *aggregation.Aggregator
	// IsLocal tells whether this server itself serves a resource; such a resource is never looked for on another server.
	IsLocal func(schema.GroupResource) bool
	// Lifetime ends the caches of remote objects.
	Lifetime context.Context // caches outlive the calls that open them
}

// Defs describes the resources that can be listed, watched and deleted. Group versions come in the order in which discovery prefers
// them.
func (r Resources) Defs() (out []*kind.Def) {
	if r.Aggregator == nil {
		return nil
	}
	for _, v := range r.Aggregator.Versions() {
		for i := range v.Resources {
			if d := describe(v.GroupVersion, &v.Resources[i]); d != nil {
				out = append(out, d)
			}
		}
	}
	return out
}

// describe returns the descriptor of one resource; nil if controllers cannot list, watch and delete its objects.
func describe(gv schema.GroupVersion, r *apidiscoveryv2.APIResourceDiscovery) *kind.Def {
	gvk := gv.WithKind("")
	if k := r.ResponseKind; k != nil {
		gvk.Kind = k.Kind
		if k.Group != "" && k.Group != gv.Group {
			return nil // the kind belongs to the server of another group
		}
	}
	d := &kind.Def{
		Traits:   kind.Traits{GroupVersionKind: gvk, Plural: r.Resource, Singular: r.SingularResource, Verbs: r.Verbs},
		JSONOnly: true,
		New:      func() kind.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		// a resource with Load counts as custom: it may appear and disappear
		Load: func([]byte) (kind.Object, error) { return nil, fmt.Errorf("%s are stored elsewhere", r.Resource) },
	}
	if r.Scope == apidiscoveryv2.ScopeCluster {
		d.Scope = kind.Cluster
	}
	if gvk.Kind == "" || !d.Serves("list") || !d.Serves("watch") || !d.Serves("delete") {
		return nil
	}
	return d
}

// find returns the descriptor of a resource; nil if no aggregated API server has it.
func (r Resources) find(on schema.GroupResource) *kind.Def {
	for _, d := range r.Defs() {
		if d.Resource() == on {
			return d
		}
	}
	return nil
}

// Undiscovered returns the group versions whose servers have not answered discovery.
func (r Resources) Undiscovered() (out []schema.GroupVersion) {
	if r.Aggregator == nil {
		return nil
	}
	for _, v := range r.Aggregator.Versions() {
		if v.Stale {
			out = append(out, v.GroupVersion)
		}
	}
	return out
}

// Follow makes a controller follow the resources of aggregated API servers as they come and go.
func (r Resources) Follow(c control.Controller) control.Controller {
	if r.Aggregator != nil {
		c.DynamicViews.AggregatedChanged = r.Aggregator.Changed(r.Lifetime)
	}
	return c
}

// AddTo returns the resources of this server and those of aggregated ones. A resource that both have is this server's.
func (r Resources) AddTo(own []*kind.Def) []*kind.Def {
	others := r.Defs()
	if len(others) == 0 {
		return own
	}
	others = slices.DeleteFunc(others, func(d *kind.Def) bool {
		return slices.ContainsFunc(own, func(o *kind.Def) bool { return o.Resource() == d.Resource() })
	})
	return slices.Concat(own, others)
}
