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

	"proa.dev/kinds/gr"
	"proa.dev/kinds/nodeaddress"
	"proa.dev/network/ingress"
)

const (
	firstPause   = 250 * time.Millisecond
	longestPause = 30 * time.Second
)

// keepPublished makes the Services of Gateways, and writes statuses.
func (s *server) keepPublished(ctx context.Context) {
	pause := firstPause
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.publish:
		case <-retry:
		}
		retry = nil
		s.mu.Lock()
		latest := s.latest
		s.mu.Unlock()
		if latest == nil {
			continue
		}
		if s.publishAll(ctx, latest) {
			pause = firstPause
			continue
		}
		retry = time.After(pause)
		pause = min(2*pause, longestPause)
	}
}

// publishAll brings everything in the cluster to what was decided. It says whether all is there now.
func (s *server) publishAll(ctx context.Context, out *outcome) bool {
	well, now := true, time.Now()
	note := func(what string, err error) {
		if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
			return
		}
		well = false
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			s.Log.Warn("what was decided about Gateways cannot be written; it is tried again", "what", what, "err", err)
		}
	}
	for _, c := range out.classes {
		note("GatewayClass "+c.Name, writeStatus(ctx, s, classes, c, func(now *gw.GatewayClass) any { return &now.Status }, classStatus(c, now)))
	}
	for _, g := range out.gateways {
		at, err := s.ensure(ctx, g, out)
		note("Service of Gateway "+keyOf(g).String(), err)
		if v, lacks := out.lack[keyOf(g)]; lacks {
			at.trouble = v
		}
		note("Gateway "+keyOf(g).String(), writeStatus(ctx, s, gateways, g.Gateway, func(o *gw.Gateway) any { return &o.Status }, gatewayStatus(g, at, now)))
	}
	for _, l := range out.sets {
		note("ListenerSet "+keyOf(l).String(), writeStatus(ctx, s, listenerSets, l.ListenerSet, func(o *gw.ListenerSet) any { return &o.Status }, setStatus(l, now)))
	}
	for _, r := range out.routes {
		note(r.kind+" "+keyOf(r).String(), s.writeRoute(ctx, r, now))
	}
	for _, p := range out.policies {
		if len(p.gateways) > 0 || len(p.Status.Ancestors) > 0 {
			note("BackendTLSPolicy "+keyOf(p).String(), writeStatus(ctx, s, policies, p.BackendTLSPolicy, func(o *gw.BackendTLSPolicy) any { return &o.Status }, policyStatus(p, now)))
		}
	}
	return well
}

// writeRoute writes the status of a route.
func (s *server) writeRoute(ctx context.Context, r *attachedRoute, now time.Time) error {
	status := routeStatus(r, now)
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

// object is a pointer to a type of the standard.
type object[T any] interface {
	*T
	metav1.Object
}

// writeStatus writes a status where it differs from what is there. An object that has changed since it was decided about is left for the
// next plan.
func writeStatus[T, S any, P object[T]](ctx context.Context, s *server, name string, decided P, statusOf func(P) any, want S) error {
	o, ok := s.custom[name].Get(decided.GetNamespace(), decided.GetName())
	if !ok {
		return nil
	}
	u, ok := o.(*unstructured.Unstructured)
	if !ok || u.GetUID() != decided.GetUID() || u.GetGeneration() != decided.GetGeneration() {
		return nil
	}
	if u.GetResourceVersion() != decided.GetResourceVersion() { // its status has been written since: times of changes are those of now
		fresh := P(new(T))
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, fresh); err != nil {
			return err
		}
		decided = fresh
	}
	if have, ok := statusOf(decided).(*S); ok && sameStatus(*have, want) {
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

// sameStatus compares statuses but for the times in them, which do not matter where nothing else differs.
func sameStatus[S any](a, b S) bool {
	return equality.Semantic.DeepEqual(timeless(a), timeless(b))
}

// timeless is a status as a tree without the times of its conditions.
func timeless[S any](status S) map[string]any {
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

// ensure makes the Service of a Gateway and its EndpointSlice for this node, and says where the Gateway is.
func (s *server) ensure(ctx context.Context, g *gateway, out *outcome) (place, error) {
	k := key{g.Namespace, serviceName(g.Gateway)}
	have, want := find[*corev1.Service](s.builtin[gr.Services], k), serviceFor(g)
	if !g.refused.isGood() {
		want = nil
	}
	switch {
	case want == nil && (have == nil || !isOwned(have, g)):
		return place{}, nil
	case want == nil:
		return place{}, s.Client.Delete(ctx, gr.Services, k.namespace, k.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
	case have == nil:
		made, err := s.Client.Create(ctx, gr.Services, want)
		if err != nil {
			return placeOf(g, nil), err
		}
		have, _ = made.(*corev1.Service)
	case !isOwned(have, g):
		return placeOf(g, have), nil
	default:
		if next := updatedService(have, want); next != nil {
			if _, err := s.Client.Update(ctx, gr.Services, next, ""); err != nil {
				return placeOf(g, have), err
			}
		}
	}
	return placeOf(g, have), errors.Join(s.ensureSlice(ctx, g, have, out), s.dropStale(ctx, g, k))
}

// dropStale deletes the slices of servers that do not answer any more.
func (s *server) dropStale(ctx context.Context, g *gateway, service key) (err error) {
	var have []*discoveryv1.EndpointSlice
	for o := range s.builtin[gr.EndpointSlices].By(ingress.ByService(), service.String()) {
		if e, ok := o.(*discoveryv1.EndpointSlice); ok {
			have = append(have, e)
		}
	}
	ready := func(node string) bool { return isReady(find[*corev1.Node](s.builtin[gr.Nodes], key{"", node})) }
	for _, e := range staleSlices(g, have, s.NodeName, ready) {
		bad := s.Client.Delete(ctx, gr.EndpointSlices, e.Namespace, e.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &e.UID}})
		if bad != nil && !apierrors.IsNotFound(bad) {
			err = errors.Join(err, bad)
		}
	}
	return err
}

// ensureSlice leads the Service to the ports of the proxy on this node.
func (s *server) ensureSlice(ctx context.Context, g *gateway, svc *corev1.Service, out *outcome) error {
	node := find[*corev1.Node](s.builtin[gr.Nodes], key{"", s.NodeName})
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
	want := sliceFor(g, node, address, out.open[keyOf(g)])
	have := find[*discoveryv1.EndpointSlice](s.builtin[gr.EndpointSlices], keyOf(want))
	if have == nil {
		_, err := s.Client.Create(ctx, gr.EndpointSlices, want)
		return err
	}
	if equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports) && maps.Equal(have.Labels, want.Labels) {
		return nil
	}
	if !isOwned(have, g) {
		return fmt.Errorf("there is an EndpointSlice %s already, which does not belong to the Gateway", have.Name)
	}
	next := have.DeepCopy()
	next.Endpoints, next.Ports, next.Labels, next.OwnerReferences = want.Endpoints, want.Ports, want.Labels, want.OwnerReferences
	_, err := s.Client.Update(ctx, gr.EndpointSlices, next, "")
	return err
}
