package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	// listCacheTime is how long a list of routes is reused, for when many nodes join at once.
	listCacheTime = time.Second
	// resyncInterval is the resync interval: routes may change in the cloud without an event here.
	resyncInterval = time.Minute
)

// routeController returns the controller that keeps a route in the cloud's network to the Pods of each node.
func routeController(r Routes, clusters []netip.Prefix) control.Controller {
	l := &routeReconciler{Routes: r, clusters: clusters}
	return control.Controller{
		Name: "route-controller", Component: "route_controller", For: gr.Nodes,
		When: func(old, now kind.Object) bool {
			a, _ := old.(*corev1.Node)
			b, _ := now.(*corev1.Node)
			return a == nil || b == nil || !slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) ||
				!slices.Equal(a.Status.Addresses, b.Status.Addresses)
		},
		Writes: []control.Write{{On: gr.Nodes, Do: "get update/status"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			return l.reconcile(ctx, c, k)
		},
	}
}

// routeReconciler is the state of the route controller: the last list of routes, which is reused for a moment.
type routeReconciler struct {
	Routes
	clusters []netip.Prefix

	mu       sync.Mutex // guards what follows
	list     []Route
	listedAt time.Time
}

func (l *routeReconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	list, err := l.cachedList(ctx)
	if err != nil {
		return 0, fmt.Errorf("error listing routes: %w", err)
	}
	isDeleted := func(node string) bool { return l.isDeleted(ctx, c, node) }
	n, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
	if !found {
		n = nil
	}
	remove, create := l.plan(n, list, isDeleted)
	var errs []error
	for _, r := range remove {
		if err := l.Delete(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("delete route %s: %w", r, err))
		}
	}
	made := true
	if n != nil {
		for _, p := range l.networksWithoutRoute(n) {
			made = false
			c.Event(n, corev1.EventTypeWarning, "RouteRefused", "No route for the network %s of node %s: it is not inside the cluster's networks of Pods", p, n.Name)
		}
	}
	for _, r := range create {
		if err := l.Create(ctx, string(n.UID), r); err != nil {
			made = false
			errs = append(errs, err)
			c.Event(n, corev1.EventTypeWarning, "FailedToCreateRoute", "Could not create route %s %s for node %s: %v", n.UID, r.Destination,
				n.Name, err)
		}
	}
	if len(remove)+len(create) > 0 {
		l.forgetList()
	}
	if n == nil {
		return 0, errors.Join(errs...)
	}
	if len(n.Spec.PodCIDRs) > 0 {
		errs = append(errs, writeNetworkCondition(ctx, c, n, made))
	}
	return resyncInterval, errors.Join(errs...)
}

// plan returns the routes to remove and to create for one node, which is nil if it does not exist. Routes of other nodes that
// no longer exist are removed as well.
func (l *routeReconciler) plan(n *corev1.Node, list []Route, isDeleted func(node string) bool) (remove, create []Route) {
	want := map[netip.Prefix]bool{}
	if n != nil {
		for _, text := range n.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil && l.isPodNetwork(p) {
				want[p.Masked()] = true
			}
		}
	}
	for _, r := range list {
		switch {
		case !slices.ContainsFunc(l.clusters, r.Destination.Overlaps):
		case r.Blackhole:
			remove = append(remove, r)
		case n != nil && r.Node == n.Name:
			if want[r.Destination] && (r.Addresses == nil || sameAddresses(r.Addresses, n.Status.Addresses)) {
				delete(want, r.Destination)
			} else {
				remove = append(remove, r)
			}
		case r.Node != "" && isDeleted(r.Node):
			remove = append(remove, r)
		}
	}
	if n == nil {
		return remove, nil
	}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && want[p.Masked()] {
			create = append(create, Route{Node: n.Name, Addresses: append([]corev1.NodeAddress{}, n.Status.Addresses...),
				Destination: p.Masked()})
		}
	}
	return remove, create
}

// isPodNetwork reports whether a network is in the cluster's networks of Pods. A route to any other network would send traffic of
// the cloud's other machines to the node.
func (l *routeReconciler) isPodNetwork(p netip.Prefix) bool {
	return slices.ContainsFunc(l.clusters, func(c netip.Prefix) bool { return c.Bits() <= p.Bits() && c.Contains(p.Addr()) })
}

// networksWithoutRoute returns the Pod networks of a node that get no route.
func (l *routeReconciler) networksWithoutRoute(n *corev1.Node) (out []netip.Prefix) {
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && !l.isPodNetwork(p) {
			out = append(out, p)
		}
	}
	return out
}

func sameAddresses(a, b []corev1.NodeAddress) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x corev1.NodeAddress) bool { return !slices.Contains(b, x) })
}

// isDeleted reports whether a node does not exist. It asks the server, because the view may not show a new node yet.
func (l *routeReconciler) isDeleted(ctx context.Context, c *control.Cluster, node string) bool {
	if _, found := c.View(gr.Nodes).Get("", node); found {
		return false
	}
	_, err := c.Get(ctx, gr.Nodes, "", node, "")
	return apierrors.IsNotFound(err)
}

// cachedList returns the routes of the cloud, from the last list if that is recent.
func (l *routeReconciler) cachedList(ctx context.Context) ([]Route, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list != nil && time.Since(l.listedAt) < listCacheTime {
		return l.list, nil
	}
	list, err := l.List(ctx)
	if err == nil {
		l.list, l.listedAt = list, time.Now()
	}
	return list, err
}

func (l *routeReconciler) forgetList() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = nil
}

// writeNetworkCondition writes the condition NetworkUnavailable, which keeps Pods from a node without a route.
func writeNetworkCondition(ctx context.Context, c *control.Cluster, n *corev1.Node, made bool) error {
	want := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated",
		Message: "RouteController created a route"}
	if !made {
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, "NoRouteCreated", "RouteController failed to create a route"
	}
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == want.Type })
	if i >= 0 && n.Status.Conditions[i].Status == want.Status && n.Status.Conditions[i].Reason == want.Reason {
		return nil
	}
	next := n.DeepCopy()
	want.LastHeartbeatTime, want.LastTransitionTime = metav1.Now(), metav1.Now()
	if i >= 0 {
		next.Status.Conditions[i] = want
	} else {
		next.Status.Conditions = append(next.Status.Conditions, want)
	}
	_, err := c.Update(ctx, gr.Nodes, next, "status")
	return control.IgnoreNotFound(err)
}
