package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/nodeaddress"
	"proa.dev/network/gatewayplan"
	"proa.dev/network/proxysync"
)

// The pauses between retries after something could not be written.
const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 30 * time.Second
)

// publishLatest writes what the last plan wants. It returns false if something could not be written.
func (s *server) publishLatest(ctx context.Context) bool {
	s.mu.Lock()
	latest := s.latest
	s.mu.Unlock()
	return latest == nil || s.publishAll(ctx, latest)
}

// publishAll writes the Services, EndpointSlices and statuses of a plan. It returns false if one could not be written.
func (s *server) publishAll(ctx context.Context, out *outcome) bool {
	complete, now := true, time.Now()
	check := func(what string, err error) {
		if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
			return
		}
		complete = false
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			s.Log.Warn("an object of a Gateway cannot be written; it is tried again", "object", what, "err", err)
		}
	}
	for _, c := range out.Classes {
		check("GatewayClass "+c.Name, writeStatus(ctx, s, classes, c, func(now *gw.GatewayClass) any { return &now.Status },
			gatewayplan.ClassStatus(c, now)))
	}
	for _, g := range out.Gateways {
		at, err := s.ensureService(ctx, g, out)
		check("Service of Gateway "+proxysync.KeyOf(g).String(), err)
		if problem, ok := out.failed[proxysync.KeyOf(g)]; ok {
			at.Problem = problem
		}
		check("Gateway "+proxysync.KeyOf(g).String(),
			writeStatus(ctx, s, gateways, g.Gateway, func(o *gw.Gateway) any { return &o.Status }, gatewayplan.GatewayStatus(g, at, now)))
	}
	for _, l := range out.ListenerSets {
		check("ListenerSet "+proxysync.KeyOf(l).String(),
			writeStatus(ctx, s, listenerSets, l.ListenerSet, func(o *gw.ListenerSet) any { return &o.Status },
				gatewayplan.ListenerSetStatus(l, now)))
	}
	for _, r := range out.Routes {
		check(r.Kind+" "+proxysync.KeyOf(r).String(), s.writeRoute(ctx, r, now))
	}
	for _, p := range out.Policies {
		if p.HasStatus() {
			check("BackendTLSPolicy "+proxysync.KeyOf(p).String(),
				writeStatus(ctx, s, policies, p.BackendTLSPolicy, func(o *gw.BackendTLSPolicy) any { return &o.Status },
					gatewayplan.PolicyStatus(p, now)))
		}
	}
	return complete
}

// writeRoute writes the status of a route.
func (s *server) writeRoute(ctx context.Context, r *gatewayplan.Route, now time.Time) error {
	status := gatewayplan.RouteStatus(r, now)
	switch o := r.Object.(type) {
	case *gw.HTTPRoute:
		return writeStatus(ctx, s, httpRoutes, o, func(o *gw.HTTPRoute) any { return &o.Status }, gw.HTTPRouteStatus{RouteStatus: status})
	case *gw.GRPCRoute:
		return writeStatus(ctx, s, grpcRoutes, o, func(o *gw.GRPCRoute) any { return &o.Status }, gw.GRPCRouteStatus{RouteStatus: status})
	case *gw.TLSRoute:
		return writeStatus(ctx, s, tlsRoutes, o, func(o *gw.TLSRoute) any { return &o.Status }, gw.TLSRouteStatus{RouteStatus: status})
	}
	return nil
}

// object is a pointer to a type of the Gateway API.
type object[T any] interface {
	*T
	metav1.Object
}

// writeStatus writes a status if it differs from the stored one. An object that has changed since the plan was made is left for the next
// plan.
func writeStatus[T, S any, P object[T]](ctx context.Context, s *server, name string, decided P, statusOf func(P) any, want S) error {
	o, ok := s.custom[name].Get(decided.GetNamespace(), decided.GetName())
	if !ok {
		return nil
	}
	u, ok := o.(*unstructured.Unstructured)
	if !ok || u.GetUID() != decided.GetUID() || u.GetGeneration() != decided.GetGeneration() {
		return nil
	}
	if u.GetResourceVersion() != decided.GetResourceVersion() { // its status was written since the plan was made
		current := P(new(T))
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, current); err != nil {
			return err
		}
		decided = current
	}
	if have, ok := statusOf(decided).(*S); ok && isSameStatus(*have, want) {
		return nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	next := u.DeepCopy()
	next.Object["status"] = status
	_, err = s.Client.Update(ctx, resource(name), next, "status")
	return err
}

// isSameStatus reports whether two statuses differ at most in the times of their conditions.
func isSameStatus[S any](a, b S) bool {
	return equality.Semantic.DeepEqual(withoutTimes(a), withoutTimes(b))
}

// withoutTimes returns a status as a tree without the times of its conditions.
func withoutTimes[S any](status S) map[string]any {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return nil
	}
	dropTimes(tree)
	return tree
}

func dropTimes(v any) {
	switch t := v.(type) {
	case map[string]any:
		delete(t, "lastTransitionTime")
		for _, inner := range t {
			dropTimes(inner)
		}
	case []any:
		for _, inner := range t {
			dropTimes(inner)
		}
	}
}

// ensureService creates, updates or deletes the Service of a Gateway and its EndpointSlice for this node. It returns
// where clients reach the Gateway.
func (s *server) ensureService(ctx context.Context, g *gatewayplan.Gateway, out *outcome) (gatewayplan.Placement, error) {
	k := key{Namespace: g.Namespace, Name: gatewayplan.ServiceName(g.Gateway)}
	have, want := proxysync.Find[*corev1.Service](s.builtin[gr.Services], k), gatewayplan.ServiceFor(g)
	switch {
	case want == nil && (have == nil || !gatewayplan.IsOwned(have, g)):
		return gatewayplan.Placement{}, nil
	case want == nil:
		return gatewayplan.Placement{}, s.Client.Delete(ctx, gr.Services, k.Namespace, k.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
	case have == nil:
		made, err := s.Client.Create(ctx, gr.Services, want)
		if err != nil {
			return gatewayplan.PlacementOf(g, nil), err
		}
		have, _ = made.(*corev1.Service)
	case !gatewayplan.IsOwned(have, g):
		return gatewayplan.PlacementOf(g, have), nil
	default:
		if next := gatewayplan.UpdatedService(have, want); next != nil {
			if _, err := s.Client.Update(ctx, gr.Services, next, ""); err != nil {
				return gatewayplan.PlacementOf(g, have), err
			}
		}
	}
	return gatewayplan.PlacementOf(g, have), errors.Join(s.ensureSlice(ctx, g, have, out), s.deleteStaleSlices(ctx, g, k))
}

// deleteStaleSlices deletes the EndpointSlices of other nodes that are deleted or not ready.
func (s *server) deleteStaleSlices(ctx context.Context, g *gatewayplan.Gateway, service key) (err error) {
	have := proxysync.SlicesOf(s.builtin[gr.EndpointSlices], service)
	ready := func(node string) bool {
		return gatewayplan.IsReady(proxysync.Find[*corev1.Node](s.builtin[gr.Nodes], key{Namespace: "", Name: node}))
	}
	for _, e := range gatewayplan.StaleSlices(g, have, s.NodeName, ready) {
		failed := s.Client.Delete(ctx, gr.EndpointSlices, e.Namespace, e.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &e.UID}})
		if failed != nil && !apierrors.IsNotFound(failed) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// ensureSlice directs the Service of a Gateway to the ports of the proxy on this node.
func (s *server) ensureSlice(ctx context.Context, g *gatewayplan.Gateway, svc *corev1.Service, out *outcome) error {
	node := proxysync.Find[*corev1.Node](s.builtin[gr.Nodes], key{Namespace: "", Name: s.NodeName})
	if node == nil {
		return errNoNode
	}
	var address netip.Addr
	for _, a := range nodeaddress.Of(node, corev1.NodeInternalIP, s.Ranges) {
		if !address.IsValid() && a.Is6() == (len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] == corev1.IPv6Protocol) {
			address = a
		}
	}
	if !address.IsValid() {
		return errNoNode
	}
	want := gatewayplan.SliceFor(g, node, address, out.open[proxysync.KeyOf(g)])
	have := proxysync.Find[*discoveryv1.EndpointSlice](s.builtin[gr.EndpointSlices], proxysync.KeyOf(want))
	if have == nil {
		_, err := s.Client.Create(ctx, gr.EndpointSlices, want)
		return err
	}
	if equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports) &&
		maps.Equal(have.Labels, want.Labels) {
		return nil
	}
	if !gatewayplan.IsOwned(have, g) {
		return fmt.Errorf("there is an EndpointSlice %s already, which does not belong to the Gateway", have.Name)
	}
	next := have.DeepCopy()
	next.Endpoints, next.Ports, next.Labels, next.OwnerReferences = want.Endpoints, want.Ports, want.Labels, want.OwnerReferences
	_, err := s.Client.Update(ctx, gr.EndpointSlices, next, "")
	return err
}
