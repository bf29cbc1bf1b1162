package gatewayplan

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/httpproxy"
)

// routeObject is what HTTPRoutes, GRPCRoutes and TLSRoutes have in common.
type routeObject struct {
	metav1.Object
	Kind      string
	parents   []gw.ParentReference
	hostnames []gw.Hostname
	status    *gw.RouteStatus
	// translate adds the rules of the route for a host name to a translation.
	translate func(t *translation, host string)
}

// Route is a route with what was decided about each of its parents among our Gateways and ListenerSets.
type Route struct {
	*routeObject
	parents []parentProblems
}

// parentProblems are the problems of a route with one parent: why it is not attached, and which of its references is not resolved.
type parentProblems struct {
	ref                    gw.ParentReference
	rejected, badReference Problem
}

// attachRoutes attaches routes to listeners, the oldest first, because in a conflict the older route wins.
func (d *decision) attachRoutes() {
	var all []*routeObject
	for _, r := range d.HTTPRoutes {
		all = append(all, &routeObject{r, kindHTTPRoute, r.Spec.ParentRefs, r.Spec.Hostnames, &r.Status.RouteStatus,
			func(t *translation, host string) { t.http(r, host) }})
	}
	for _, r := range d.GRPCRoutes {
		all = append(all, &routeObject{r, kindGRPCRoute, r.Spec.ParentRefs, r.Spec.Hostnames, &r.Status.RouteStatus,
			func(t *translation, host string) { t.grpc(r, host) }})
	}
	for _, r := range d.TLSRoutes {
		all = append(all, &routeObject{r, kindTLSRoute, r.Spec.ParentRefs, r.Spec.Hostnames, &r.Status.RouteStatus,
			func(t *translation, host string) { t.tls(r, host) }})
	}
	for _, r := range sorted(all) {
		out := &Route{routeObject: r}
		for _, ref := range r.parents {
			if listeners, ok := d.listenersOf(r, ref); ok {
				out.parents = append(out.parents, d.attach(r, ref, listeners))
			}
		}
		if len(out.parents) > 0 || hasStatus(r.status) {
			d.plan.Routes = append(d.plan.Routes, out)
		}
	}
}

// hasStatus reports whether this controller has an entry in the status of a route.
func hasStatus(s *gw.RouteStatus) bool {
	return slices.ContainsFunc(s.Parents, func(p gw.RouteParentStatus) bool { return p.ControllerName == Controller })
}

// listenersOf returns the listeners of a parent of a route, and whether the parent is a Gateway or ListenerSet of ours.
func (d *decision) listenersOf(r *routeObject, ref gw.ParentReference) ([]*listener, bool) {
	k := key{Namespace: string(deref(ref.Namespace, gw.Namespace(r.GetNamespace()))), Name: string(ref.Name)}
	if deref(ref.Group, group) != group {
		return nil, false
	}
	switch deref(ref.Kind, kindGateway) {
	case kindGateway:
		if g := d.byName[k]; g != nil {
			return slices.DeleteFunc(slices.Clone(g.listeners), func(l *listener) bool { return l.set != nil }), true
		}
	case kindListenerSet:
		if s := d.bySet[k]; s != nil {
			return s.listeners, true
		}
	}
	return nil, false
}

// maxRules bounds the rules of a listener.
const maxRules = 50_000

// attach attaches a route to those listeners of a parent that allow it, and returns its problems.
func (d *decision) attach(r *routeObject, ref gw.ParentReference, listeners []*listener) parentProblems {
	out := parentProblems{ref: ref}
	listeners = slices.DeleteFunc(slices.Clone(listeners), func(l *listener) bool {
		return ref.SectionName != nil && *ref.SectionName != l.Name || ref.Port != nil && *ref.Port != l.Port
	})
	if len(listeners) == 0 {
		out.rejected = Problem{string(gw.RouteReasonNoMatchingParent), "the parent has no listener with this name and port"}
	}
	if len(listeners) > 0 {
		listeners = slices.DeleteFunc(listeners, func(l *listener) bool { return !d.allows(l, r) })
		if len(listeners) == 0 {
			out.rejected = Problem{string(gw.RouteReasonNotAllowedByListeners),
				"no listener of the parent takes routes of this kind and namespace"}
		}
	}
	t := &translation{decision: d, route: r}
	matched := false
	for _, l := range listeners {
		hosts := intersections(l.host(), r.hostnames)
		if len(hosts) == 0 {
			continue
		}
		matched = true
		l.attached++
		t.gateway = l.gateway
		t.rules = nil
		for _, host := range hosts {
			r.translate(t, host)
		}
		if len(l.rules)+len(t.rules) > maxRules {
			t.refuse("the listener %s has %d rules already, and more are not served", l.Name, len(l.rules))
		}
		if t.rejected.IsZero() {
			l.rules = append(l.rules, t.rules...)
			d.plan.withRules[r.GetUID()] = len(t.rules) > 0 || d.plan.withRules[r.GetUID()]
		}
	}
	switch {
	case !out.rejected.IsZero():
	case !matched:
		out.rejected = Problem{string(gw.RouteReasonNoMatchingListenerHostname),
			"no listener of the parent is for a host name of the route"}
	default:
		out.rejected = t.rejected
	}
	if !matched { // its references are checked all the same
		t.gateway = &Gateway{Gateway: &gw.Gateway{}}
		r.translate(t, "")
	}
	out.badReference = t.badReference
	return out
}

// allows reports whether a listener allows routes of this kind and namespace.
func (d *decision) allows(l *listener, r *routeObject) bool {
	if !slices.ContainsFunc(l.kinds, func(k gw.RouteGroupKind) bool { return string(k.Kind) == r.Kind }) {
		return false
	}
	var from *gw.RouteNamespaces
	if l.AllowedRoutes != nil {
		from = l.AllowedRoutes.Namespaces
	}
	if from == nil {
		return r.GetNamespace() == l.namespace()
	}
	return d.inNamespaces(deref(from.From, gw.NamespacesFromSame), from.Selector, l.namespace(), r.GetNamespace())
}

// inNamespaces reports whether a namespace is selected by an object in the namespace own.
func (d *decision) inNamespaces(from gw.FromNamespaces, selector *metav1.LabelSelector, own, namespace string) bool {
	switch from {
	case gw.NamespacesFromAll:
		return true
	case gw.NamespacesFromSame:
		return own == namespace
	case gw.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && s.Matches(labels.Set(d.NamespaceLabels(namespace)))
	}
	return false
}

// intersections returns the host names that both the listener and the route are for. An empty name stands for all.
func intersections(listener string, hostnames []gw.Hostname) (out []string) {
	if len(hostnames) == 0 {
		return []string{strings.ToLower(listener)}
	}
	for _, h := range hostnames {
		if host, ok := intersect(strings.ToLower(listener), strings.ToLower(string(h))); ok && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}

// intersect returns the narrower of two host names, each of which may be a wildcard, if one covers the other.
func intersect(a, b string) (string, bool) {
	switch {
	case covers(a, b):
		return b, true
	case covers(b, a):
		return a, true
	}
	return "", false
}

// covers reports whether wide matches every name that narrow matches.
func covers(wide, narrow string) bool {
	if wide == "" || wide == narrow {
		return true
	}
	suffix, wild := strings.CutPrefix(wide, "*")
	return wild && narrow != "" && len(strings.TrimPrefix(narrow, "*")) > len(suffix) && strings.HasSuffix(narrow, suffix)
}

// translation collects the rules of a route for a Gateway, and its problems.
type translation struct {
	*decision
	route                  *routeObject
	gateway                *Gateway
	rules                  []httpproxy.Rule
	rejected, badReference Problem
}

// refuse records that the route needs something that is not supported; the first problem counts.
func (t *translation) refuse(format string, args ...any) {
	if t.rejected.IsZero() {
		t.rejected = Problem{string(gw.RouteReasonUnsupportedValue), fmt.Sprintf(format, args...)}
	}
}

// refuseReference records that a reference of the route is not resolved; the first problem counts.
func (t *translation) refuseReference(reason gw.RouteConditionReason, format string, args ...any) {
	if t.badReference.IsZero() {
		t.badReference = Problem{string(reason), fmt.Sprintf(format, args...)}
	}
}

func (t *translation) owner() httpproxy.Owner {
	return httpproxy.Owner{Namespace: t.route.GetNamespace(), Name: t.route.GetName()}
}
