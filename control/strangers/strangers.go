// Package strangers finds endpoints that lead out of their namespace: an EndpointSlice that somebody has written by hand may name
// the address of any Pod, and so make a Service of one namespace, and whatever stands before it, speak to Pods of another. The
// admission plugin RestrictedEndpoints refuses that of users who may not do it in the other namespace. What is left is a Pod that
// has got the address later, and what administrators write: that is served, but both sides are told.
package strangers

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

const (
	// ours is who writes the slices that follow from selectors: those stay in their namespace by themselves.
	ours = "endpointslice-controller.k8s.io"
	// most is how many Pods are told about one slice.
	most = 10
)

// Controller returns the loop.
func Controller() control.Controller {
	return control.Controller{
		Name: "foreign-endpoints-controller", For: gr.EndpointSlices, When: sliceMatters,
		Triggers:  []control.Trigger{{On: gr.Pods, Keys: naming, When: podMatters}},
		Reconcile: reconcile,
	}
}

func reconcile(_ context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	s, found := control.Get[*discoveryv1.EndpointSlice](c, gr.EndpointSlices, k.Namespace, k.Name)
	if !found || !byHand(s) {
		return 0, nil
	}
	var list []stranger
	for _, ip := range addresses(s) {
		for p := range control.By[*corev1.Pod](c, gr.Pods, byIP(), ip) {
			if p.Namespace != s.Namespace {
				list = append(list, stranger{ip, p})
			}
		}
	}
	if len(list) == 0 {
		return 0, nil
	}
	// Who wrote the slice need not learn whose Pods these are; who has the Pods shall know who reaches for them.
	c.Event(s, corev1.EventTypeWarning, "ForeignEndpoint", "%s", told(list))
	for _, x := range list[:min(most, len(list))] {
		c.Event(x.pod, corev1.EventTypeWarning, "ForeignEndpoint", "EndpointSlice %s/%s of another namespace leads to this Pod", s.Namespace, s.Name)
	}
	return 0, nil
}

// stranger is a Pod of another namespace, and by which address it was found.
type stranger struct {
	ip  string
	pod *corev1.Pod
}

func told(list []stranger) string {
	var ips []string
	for _, x := range list {
		ips = append(ips, x.ip)
	}
	slices.Sort(ips)
	ips = slices.Compact(ips)
	switch n := len(ips); {
	case n == 1:
		return ips[0] + " is the address of a Pod in another namespace"
	case n > most:
		return fmt.Sprintf("%s and %d more are addresses of Pods in other namespaces", strings.Join(ips[:most], ", "), n-most)
	}
	return strings.Join(ips, ", ") + " are addresses of Pods in other namespaces"
}

// reachable says that a Pod has an address of its own, and uses it.
func reachable(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func byHand(s *discoveryv1.EndpointSlice) bool { return s.Labels[discoveryv1.LabelManagedBy] != ours }

func addresses(s *discoveryv1.EndpointSlice) (out []string) {
	for _, e := range s.Endpoints {
		for _, a := range e.Addresses {
			if ip, err := netip.ParseAddr(a); err == nil {
				out = append(out, ip.Unmap().String())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func ips(p *corev1.Pod) (out []string) {
	for _, i := range p.Status.PodIPs {
		if ip, err := netip.ParseAddr(i.IP); err == nil {
			out = append(out, ip.Unmap().String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// byIP finds Pods by their addresses.
func byIP() client.Index {
	return client.Index{Name: "ownAddress", Of: func(o kind.Object) []string {
		if p, ok := o.(*corev1.Pod); ok && reachable(p) {
			return ips(p)
		}
		return nil
	}}
}

// byAddress finds slices that were written by hand by the addresses in them.
func byAddress() client.Index {
	return client.Index{Name: "addressByHand", Of: func(o kind.Object) []string {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok && byHand(s) {
			return addresses(s)
		}
		return nil
	}}
}

// naming are the slices that name an address of a Pod.
func naming(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		p, ok := o.(*corev1.Pod)
		if !ok {
			return
		}
		for _, ip := range ips(p) {
			for s := range c.View(gr.EndpointSlices).By(byAddress(), ip) {
				if s.GetNamespace() != p.Namespace && !yield(control.KeyOf(s)) {
					return
				}
			}
		}
	}
}

func sliceMatters(old, now kind.Object) bool {
	b, ok := now.(*discoveryv1.EndpointSlice)
	if !ok || b == nil || !byHand(b) {
		return false
	}
	a, _ := old.(*discoveryv1.EndpointSlice)
	return a == nil || !byHand(a) || !apiequality.Semantic.DeepEqual(addresses(a), addresses(b))
}

// podMatters says that a Pod has got an address.
func podMatters(old, now kind.Object) bool {
	b, ok := now.(*corev1.Pod)
	if !ok || b == nil || len(b.Status.PodIPs) == 0 {
		return false
	}
	a, _ := old.(*corev1.Pod)
	return a == nil || !slices.Equal(ips(a), ips(b))
}
