package nodereports

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/nodereport"
)

// maxTook is how long the programming of rules takes at most. Work on a Pod is bounded by the age of the Pod.
const maxTook = time.Hour

// checker makes records of hops of what one node reports.
type checker struct {
	user, node string
	offset     time.Duration // of the clocks
	now        time.Time
	find       func(on schema.GroupResource, namespace, name string) (kind.Object, bool)
	created    time.Time // when the object of the last record was created
}

// record returns the record of what a node reports. It reports false if that is not about an object that the node works on.
func (c *checker) record(r *nodereport.Record) (hop.Record, bool) {
	h := nodereport.HopOf(r.Verb)
	on := schema.GroupResource{Group: r.Group, Resource: r.Resource}
	if h == 0 || !concerns(r.Verb, on) || r.Revision <= 0 || len(r.Steps) > nodereport.MaxSteps {
		return hop.Record{}, false
	}
	o, found := c.find(on, r.Namespace, r.Name)
	if !found || o.GetUID() != r.UID {
		return hop.Record{}, false
	}
	if p, isPod := o.(*corev1.Pod); isPod && p.Spec.NodeName != c.node {
		return hop.Record{}, false
	}
	if s, isSlice := o.(*discoveryv1.EndpointSlice); isSlice && r.Verb == hop.Answer && !hasEndpoint(s, c.node) {
		return hop.Record{}, false
	}
	c.created = o.GetCreationTimestamp().Time
	out := hop.Record{
		// The strings are those of the object, not those of the report: they are checked, and need no memory of their own.
		UID: o.GetUID(), Rev: r.Revision, Verb: r.Verb, Group: on.Group, Resource: on.Resource,
		Namespace: o.GetNamespace(), Name: o.GetName(),
		User: c.user, Process: "agent of " + c.node, Start: r.Start.Add(c.offset), CauseUID: o.GetUID(), CauseRev: r.Revision,
		Open: r.Open, Error: nodereport.Text(r.Error),
	}
	c.setTimes(&out, r)
	return out, true
}

// ended returns an open record with what the node reports about the end of its work. The object need not exist any more: it did when the
// work was reported first.
func (c *checker) ended(before *hop.Record, r *nodereport.Record) (hop.Record, bool) {
	if r.Open || len(r.Steps) > nodereport.MaxSteps {
		return hop.Record{}, false
	}
	c.created = before.Start
	out := *before
	out.Open, out.Error, out.Steps = false, nodereport.Text(r.Error), nil
	c.setTimes(&out, r)
	return out, true
}

// setTimes sets the times and the steps of a record to what a node reports, as far as that is possible.
func (c *checker) setTimes(out *hop.Record, r *nodereport.Record) {
	h := nodereport.HopOf(r.Verb)
	out.Took[h], out.Wait[h] = r.Took, r.Wait
	for _, s := range r.Steps {
		out.Steps = append(out.Steps, hop.Step{Hop: h, Name: nodereport.Text(s.Name), Detail: nodereport.Text(s.Detail), After: s.After,
			Took: s.Took, Wait: s.Wait, Failed: s.Failed})
	}
	c.bound(out)
}

// concerns reports whether work with a verb can be about a resource.
func concerns(verb string, on schema.GroupResource) bool {
	switch verb {
	case hop.Program:
		return on == gr.EndpointSlices || on == gr.Services || isProxied(on)
	case hop.Answer:
		return on == gr.EndpointSlices
	}
	return on == gr.Pods
}

// isProxied reports whether the proxy on the first node of a server follows the changes of a resource.
func isProxied(on schema.GroupResource) bool {
	switch on.Group {
	case networkingv1.GroupName:
		return on.Resource == "ingresses"
	case "gateway.networking.k8s.io":
		return slices.Contains([]string{"gateways", "httproutes", "grpcroutes", "tlsroutes"}, on.Resource)
	}
	return false
}

// hasEndpoint reports whether an endpoint of a slice is on a node: only that node knows when it has answered.
func hasEndpoint(s *discoveryv1.EndpointSlice, node string) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.NodeName != nil && *e.NodeName == node })
}

// bound limits the times of a record to what is possible: nothing begins before its object was created or ends after now.
func (c *checker) bound(r *hop.Record) {
	if r.Start.Before(c.created) {
		r.Start = c.created
	}
	if r.Start.After(c.now) {
		r.Start = c.now
	}
	h := nodereport.HopOf(r.Verb)
	longest := c.now.Sub(r.Start)
	if h != hop.Node {
		longest = min(longest, maxTook)
	}
	r.Took[h] = clamp(r.Took[h], longest)
	r.Wait[h] = clamp(r.Wait[h], r.Took[h])
	for i := range r.Steps {
		s := &r.Steps[i]
		s.After = clamp(s.After, r.Took[h])
		s.Took = clamp(s.Took, r.Took[h]-s.After)
		s.Wait = clamp(s.Wait, s.Took)
	}
}

// clamp returns d, at least 0 and at most limit.
func clamp(d, limit time.Duration) time.Duration { return max(min(d, limit), 0) }
