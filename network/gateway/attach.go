package gateway

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/route"
)

// routeObject is a route of any kind.
type routeObject struct {
	metav1.Object
	kind      string
	parents   []gw.ParentReference
	hostnames []gw.Hostname
	status    *gw.RouteStatus
	// translate makes the rules of the route for a host name, as they are at a Gateway.
	translate func(t *translation, host string)
}

// attachedRoute is a route with what was decided about each of its parents that is ours.
type attachedRoute struct {
	*routeObject
	parents []parentVerdict
}

// parentVerdict says whether a route is attached to a parent, and whether all that it refers to is there.
type parentVerdict struct {
	ref                  gw.ParentReference
	accepted, references verdict
}

// attachRoutes attaches routes to listeners, the oldest first: what two of them want belongs to the older one.
func (d *decision) attachRoutes() {
	var all []*routeObject
	for _, r := range d.http {
		all = append(all, &routeObject{r, kindHTTPRoute, r.Spec.ParentRefs, r.Spec.Hostnames, &r.Status.RouteStatus, func(t *translation, host string) { t.http(r, host) }})
	}
	for _, r := range d.grpc {
		all = append(all, &routeObject{r, kindGRPCRoute, r.Spec.ParentRefs, r.Spec.Hostnames, &r.Status.RouteStatus, func(t *translation, host string) { t.grpc(r, host) }})
	}
	for _, r := range d.tls {
		all = append(all, &routeObject{r, kindTLSRoute, r.Spec.ParentRefs, r.Spec.Hostnames, &r.Status.RouteStatus, func(t *translation, host string) { t.tls(r, host) }})
	}
	for _, r := range sorted(all) {
		out := &attachedRoute{routeObject: r}
		for _, ref := range r.parents {
			if listeners, ours := d.listenersOf(r, ref); ours {
				out.parents = append(out.parents, d.attach(r, ref, listeners))
			}
		}
		if len(out.parents) > 0 || hasStatus(r.status) {
			d.plan.routes = append(d.plan.routes, out)
		}
	}
}

// hasStatus says that there is something of ours in the status of a route.
func hasStatus(s *gw.RouteStatus) bool {
	return slices.ContainsFunc(s.Parents, func(p gw.RouteParentStatus) bool { return p.ControllerName == Controller })
}

// listenersOf are the listeners that a parent of a route has, and whether the parent is ours.
func (d *decision) listenersOf(r *routeObject, ref gw.ParentReference) ([]*listener, bool) {
	k := key{string(deref(ref.Namespace, gw.Namespace(r.GetNamespace()))), string(ref.Name)}
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

// attach attaches a route to the listeners of a parent that let it, and says what came of it.
func (d *decision) attach(r *routeObject, ref gw.ParentReference, listeners []*listener) parentVerdict {
	out := parentVerdict{ref: ref}
	listeners = slices.DeleteFunc(slices.Clone(listeners), func(l *listener) bool {
		return ref.SectionName != nil && *ref.SectionName != l.Name || ref.Port != nil && *ref.Port != l.Port
	})
	if len(listeners) == 0 {
		out.accepted = verdict{string(gw.RouteReasonNoMatchingParent), "the parent has no listener with this name and port"}
	}
	if len(listeners) > 0 {
		listeners = slices.DeleteFunc(listeners, func(l *listener) bool { return !d.allows(l, r) })
		if len(listeners) == 0 {
			out.accepted = verdict{string(gw.RouteReasonNotAllowedByListeners), "no listener of the parent takes routes of this kind and namespace"}
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
		if t.accepted.isGood() {
			l.rules = append(l.rules, t.rules...)
		}
	}
	switch {
	case !out.accepted.isGood():
	case !matched:
		out.accepted = verdict{string(gw.RouteReasonNoMatchingListenerHostname), "no listener of the parent is for a host name of the route"}
	default:
		out.accepted = t.accepted
	}
	if !matched { // what it refers to is looked at all the same
		t.gateway = &gateway{Gateway: &gw.Gateway{}}
		r.translate(t, "")
	}
	out.references = t.references
	return out
}

// allows says that a listener takes routes of a kind and namespace.
func (d *decision) allows(l *listener, r *routeObject) bool {
	if !slices.ContainsFunc(l.kinds, func(k gw.RouteGroupKind) bool { return string(k.Kind) == r.kind }) {
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

// inNamespaces says that a namespace is among those that are meant, seen from another one.
func (d *decision) inNamespaces(from gw.FromNamespaces, selector *metav1.LabelSelector, own, namespace string) bool {
	switch from {
	case gw.NamespacesFromAll:
		return true
	case gw.NamespacesFromSame:
		return own == namespace
	case gw.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && s.Matches(labels.Set(d.labels(namespace)))
	}
	return false
}

// intersections are the host names that a listener and a route have in common; an empty name stands for all.
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

// intersect is what two host names have in common, of which each may be a wildcard: the narrower one.
func intersect(a, b string) (string, bool) {
	switch {
	case covers(a, b):
		return b, true
	case covers(b, a):
		return a, true
	}
	return "", false
}

// covers says that every name that narrow stands for is one that wide stands for.
func covers(wide, narrow string) bool {
	if wide == "" || wide == narrow {
		return true
	}
	suffix, wild := strings.CutPrefix(wide, "*")
	return wild && narrow != "" && len(strings.TrimPrefix(narrow, "*")) > len(suffix) && strings.HasSuffix(narrow, suffix)
}

// translation makes rules of a route for a Gateway, and collects what is wrong with it.
type translation struct {
	*decision
	route                *routeObject
	gateway              *gateway
	rules                []route.Rule
	accepted, references verdict
}

// refuse says that the route asks for something that there is not here; the first reason counts.
func (t *translation) refuse(format string, args ...any) {
	if t.accepted.isGood() {
		t.accepted = verdict{string(gw.RouteReasonUnsupportedValue), fmt.Sprintf(format, args...)}
	}
}

// unresolved says that something that the route refers to cannot be used; the first reason counts.
func (t *translation) unresolved(reason gw.RouteConditionReason, format string, args ...any) {
	if t.references.isGood() {
		t.references = verdict{string(reason), fmt.Sprintf(format, args...)}
	}
}

func (t *translation) owner() route.Owner {
	return route.Owner{Namespace: t.route.GetNamespace(), Name: t.route.GetName()}
}
