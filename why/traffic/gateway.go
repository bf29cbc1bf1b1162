package traffic

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/metadata"
)

// GatewayGroup is the API group of the Gateway API, whose objects are custom ones.
const GatewayGroup = "gateway.networking.k8s.io"

// GatewayResource returns a resource of the Gateway API.
func GatewayResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: GatewayGroup, Resource: name}
}

// Gateway is the part of a Gateway that explanations read.
type Gateway struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		GatewayClassName string `json:"gatewayClassName"`
	} `json:"spec"`
	Status struct {
		Conditions []lookup.Condition `json:"conditions"`
		Listeners  []struct {
			Name       string             `json:"name"`
			Conditions []lookup.Condition `json:"conditions"`
		} `json:"listeners"`
	} `json:"status"`
}

// Gateway explains a Gateway of the Gateway API: its class, and what its controller says of it and of its listeners.
func (r *Explainer) Gateway(ctx context.Context, ref answer.Ref) (*answer.Answer, error) {
	return r.explainListeners(ctx, ref, func(string) bool { return true })
}

// explainListeners explains a Gateway as far as somebody uses it: of its listeners those count of which a predicate is true.
func (r *Explainer) explainListeners(ctx context.Context, ref answer.Ref, isUsed func(listener string) bool) (*answer.Answer, error) {
	g, err := lookup.Load[Gateway](ctx, r.Reader, GatewayResource("gateways"), ref.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	a := (&answer.Answer{Object: ref, State: answer.Stuck}).At(hop.Network)
	if g.DeletionTimestamp != nil {
		return metadata.Ending(a, &g.ObjectMeta, r.Now), nil
	}
	if class := g.Spec.GatewayClassName; class != "" {
		_, missing := lookup.Get[lookup.Conditioned](ctx, r.Reader, GatewayResource("gatewayclasses"), "", class)
		if !a.AddStep("class", !missing, "%s", class) {
			a.Cause = "The GatewayClass " + class + " does not exist, so that no controller serves the Gateway."
			return a.Because(a.Object, "spec.gatewayClassName", class, time.Time{}).
				Do("kubectl get gatewayclass shows those that there are"), nil
		}
	}
	if c := lookup.FirstFalse(g.Status.Conditions, "Accepted", "Programmed"); c != nil {
		a.Cause = "The Gateway is not served" + reasonOf(c)
		return a.Because(a.Object, "status.conditions["+c.Type+"]", c.Reason+": "+c.Message, c.Time()), nil
	}
	for _, l := range g.Status.Listeners {
		if !isUsed(l.Name) {
			continue
		}
		if c := lookup.FirstFalse(l.Conditions, "Accepted", "ResolvedRefs", "Programmed"); c != nil {
			a.AddStep("listener "+l.Name, false, "%s: %s", c.Reason, c.Message)
			a.Cause = "The listener " + l.Name + " of the Gateway is not served" + reasonOf(c)
			return a.Because(a.Object, "status.listeners["+l.Name+"].conditions["+c.Type+"]", c.Reason+": "+c.Message, c.Time()), nil
		}
		a.AddStep("listener "+l.Name, true, "nothing is wrong with it")
	}
	if !lookup.IsTrue(g.Status.Conditions, "Accepted") || !lookup.IsTrue(g.Status.Conditions, "Programmed") {
		a.Cause = "No controller has said that it serves the Gateway."
		if r.Now.Sub(metadata.LastChange(&g.ObjectMeta)) < metadata.Patience {
			a.State = answer.Waiting
		}
		return a.Because(a.Object, "status.conditions", "neither Accepted nor Programmed is False, and not both are True", time.Time{}).
			Do("check that a controller for its class runs; proa serves Gateways unless --ingress is off"), nil
	}
	a.State, a.Hop, a.HopName, a.Cause = answer.Working, 0, "", "The Gateway is accepted and programmed."
	return a, nil
}

// reasonOf returns what a condition says, for the end of a sentence.
func reasonOf(c *lookup.Condition) string {
	return " (" + c.Reason + "): " + answer.Sentence(c.Message) + "."
}

// parentRef names a Gateway, or another object, that a route is attached to.
type parentRef struct {
	Group       *string `json:"group"`
	Kind        string  `json:"kind"`
	Namespace   string  `json:"namespace"`
	Name        string  `json:"name"`
	SectionName string  `json:"sectionName"`
	Port        int32   `json:"port"`
}

// isGateway tells whether the parent is a Gateway, which is the default.
func (p *parentRef) isGateway() bool {
	return (p.Group == nil || *p.Group == GatewayGroup) && (p.Kind == "" || p.Kind == "Gateway")
}

// isSame tells whether two references of a route of a namespace are to the same part of the same parent.
func (p *parentRef) isSame(other *parentRef, namespace string) bool {
	return p.Name == other.Name && p.SectionName == other.SectionName && p.Port == other.Port &&
		cmp.Or(p.Kind, "Gateway") == cmp.Or(other.Kind, "Gateway") &&
		cmp.Or(p.Namespace, namespace) == cmp.Or(other.Namespace, namespace)
}

// Route is the part of a route of the Gateway API that explanations read.
type Route struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ParentRefs []parentRef `json:"parentRefs"`
		Rules      []struct {
			BackendRefs []backendRef `json:"backendRefs"`
		} `json:"rules"`
	} `json:"spec"`
	Status struct {
		Parents []parentStatus `json:"parents"`
	} `json:"status"`
}

// parentStatus is what a Gateway says of a route.
type parentStatus struct {
	ParentRef  parentRef          `json:"parentRef"`
	Conditions []lookup.Condition `json:"conditions"`
}

// backendRef names what a route leads to.
type backendRef struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      int32  `json:"port"`
	Weight    *int32 `json:"weight"`
}

// Route explains a route of the Gateway API, which is an object of the resource: by what its Gateways say of it, by the Gateways, and by
// the Services behind it.
func (r *Explainer) Route(ctx context.Context, from schema.GroupResource, ref answer.Ref) (*answer.Answer, error) {
	o, err := lookup.Load[Route](ctx, r.Reader, from, ref.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	a := (&answer.Answer{Object: ref, State: answer.Stuck}).At(hop.Network)
	switch {
	case o.DeletionTimestamp != nil:
		return metadata.Ending(a, &o.ObjectMeta, r.Now), nil
	case rejected(o, a):
		return a, nil
	}
	unread := false
	for i := range o.Spec.ParentRefs {
		p := &o.Spec.ParentRefs[i]
		if !p.isGateway() {
			continue
		}
		if seen, isCause := r.parent(ctx, o, p, a); isCause {
			return a, nil
		} else if !seen {
			unread = true
		}
	}
	if done := unanswered(o, a); done {
		return a, nil
	}
	for _, b := range o.serviceBackends() {
		s, missing := lookup.Get[corev1.Service](ctx, r.Reader, gr.Services, b.namespace, b.name)
		if s == nil && !missing {
			unread = true
		} else if done := r.backend(ctx, b, s, a); done {
			return a, nil
		}
	}
	a.State, a.Hop, a.HopName = answer.Working, 0, ""
	a.Cause = "The route is accepted by " + answer.Plural(len(o.Status.Parents), "Gateway") +
		", and every Service that it names has endpoints."
	if unread {
		a.State, a.Cause = answer.Unknown, "The route is accepted, but not everything that it names could be read."
	}
	return a, nil
}

// rejected looks for a Gateway that says that it does not serve the route, and returns whether there is one.
func rejected(o *Route, a *answer.Answer) bool {
	for _, parent := range o.Status.Parents {
		if c := lookup.FirstFalse(parent.Conditions, "Accepted", "ResolvedRefs"); c != nil {
			name := parent.ParentRef.Name
			a.Cause = "The Gateway " + name + " does not serve the route" + reasonOf(c)
			a.Because(a.Object, "status.parents["+name+"].conditions["+c.Type+"]", c.Reason+": "+c.Message, c.Time())
			return true
		}
	}
	return false
}

// unanswered looks whether the status of the route has no Gateway, or one that has not accepted it, and returns whether that is so.
func unanswered(o *Route, a *answer.Answer) bool {
	if len(o.Status.Parents) == 0 {
		a.Cause = "No Gateway has taken the route: its status names none."
		a.Because(a.Object, "status.parents", "empty", time.Time{}).
			Do("check spec.parentRefs, and that the Gateway exists and its class has a controller")
		return true
	}
	for i := range o.Status.Parents {
		if !lookup.IsTrue(o.Status.Parents[i].Conditions, "Accepted") {
			a.State, a.Cause = answer.Unknown, "Not every Gateway that the status of the route names has said whether it accepts it."
			return true
		}
	}
	return false
}

// parent looks at a Gateway that a route names. Seen is false when it cannot be read; isCause says that it is what is wrong.
func (r *Explainer) parent(ctx context.Context, o *Route, p *parentRef, a *answer.Answer) (seen, isCause bool) {
	ref := answer.Ref{Kind: "Gateway", Namespace: cmp.Or(p.Namespace, o.Namespace), Name: p.Name}
	g, missing := lookup.Get[Gateway](ctx, r.Reader, GatewayResource("gateways"), ref.Namespace, ref.Name)
	step := "Gateway " + p.Name
	if p.SectionName != "" {
		step += " (" + p.SectionName + ")"
	}
	if missing {
		a.AddStep(step, false, "does not exist")
		a.Cause = "The Gateway " + p.Name + " that the route names does not exist in namespace " + ref.Namespace + "."
		a.Because(a.Object, "spec.parentRefs.name", p.Name, time.Time{}).Do("create the Gateway, or correct its name")
		return true, true
	}
	if g != nil {
		// A route that names no listener may be served by any of them; its status says so.
		behind, err := r.explainListeners(ctx, ref, func(listener string) bool { return listener == p.SectionName })
		if err == nil && behind.State != answer.Working {
			a.AddStep(step, false, "%s", answer.Lower(behind.Cause))
			a.Cause = "The Gateway " + p.Name + " of the route does not work: " + answer.Lower(behind.Cause)
			a.State, a.Through = behind.State, behind
			return true, true
		}
	}
	i := slices.IndexFunc(o.Status.Parents, func(s parentStatus) bool { return p.isSame(&s.ParentRef, o.Namespace) })
	switch {
	case i >= 0 && lookup.IsTrue(o.Status.Parents[i].Conditions, "Accepted"):
		a.AddStep(step, true, "accepts the route")
		return g != nil, false
	case i >= 0:
		a.AddStep(step, false, "has not said whether it accepts the route")
		return g != nil, false
	}
	a.AddStep(step, false, "has not said anything about the route")
	a.Cause = "The Gateway " + p.Name + " has not said anything about the route; its controller may not be running, " +
		"or not know the part of the Gateway that the route names."
	if r.Now.Sub(metadata.LastChange(&o.ObjectMeta)) < metadata.Patience {
		a.State = answer.Waiting
	}
	a.Because(a.Object, "status.parents", "has no entry for "+p.Name, time.Time{}).
		Do("check sectionName and port in spec.parentRefs, and that a controller for the class of the Gateway runs")
	return true, true
}

// serviceBackends returns the Services that a route leads traffic to, each port once.
func (o *Route) serviceBackends() (out []serviceBackend) {
	for _, rule := range o.Spec.Rules {
		for _, b := range rule.BackendRefs {
			isService := b.Group == "" && (b.Kind == "" || b.Kind == "Service")
			if !isService || b.Name == "" || b.Weight != nil && *b.Weight == 0 {
				continue
			}
			to := serviceBackend{namespace: cmp.Or(b.Namespace, o.Namespace), name: b.Name, port: b.Port, from: "route",
				field: "spec.rules.backendRefs"}
			if !slices.Contains(out, to) {
				out = append(out, to)
			}
		}
	}
	return out
}
