// Package foreignendpoints warns about endpoints that lead into another namespace. An EndpointSlice that a user has written
// by hand may contain the address of any Pod, so that a Service of one namespace, and an Ingress before it, send traffic to
// Pods of another. The admission plugin RestrictedEndpoints rejects such a slice unless its writer may write endpoints in the
// other namespace too. It cannot see a Pod that gets the address later, and lets administrators pass. The controller deletes
// nothing and such endpoints are served, but it records Events on the slice and on the Pods, so that both owners know.
package foreignendpoints

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
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	// managedByController marks the slices that the EndpointSlice controller writes: they contain only Pods of their own namespace.
	managedByController = "endpointslice-controller.k8s.io"
	// maxListed bounds the addresses in one Event, and the Pods that get an Event about one slice.
	maxListed = 10
)

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: "foreign-endpoints-controller", For: gr.EndpointSlices, When: isRelevantSliceChange,
		Triggers:  []control.Trigger{{On: gr.Pods, Keys: slicesWithAddressOf, When: hasNewAddress}},
		Reconcile: reconcile,
	}
}

func reconcile(_ context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	s, found := control.Get[*discoveryv1.EndpointSlice](c, gr.EndpointSlices, k.Namespace, k.Name)
	if !found || !isHandWritten(s) {
		return 0, nil
	}
	var list []foreignPod
	for _, ip := range addresses(s) {
		for p := range control.By[*corev1.Pod](c, gr.Pods, byIP(), ip) {
			if p.Namespace != s.Namespace {
				list = append(list, foreignPod{ip, p})
			}
		}
	}
	if len(list) == 0 {
		return 0, nil
	}
	// The Event on the slice does not name the Pods: its writer need not learn about other namespaces.
	c.Event(s, corev1.EventTypeWarning, "ForeignEndpoint", "%s", eventMessage(list))
	for _, x := range list[:min(maxListed, len(list))] {
		c.Event(x.pod, corev1.EventTypeWarning, "ForeignEndpoint", "EndpointSlice %s/%s of another namespace leads to this Pod",
			s.Namespace, s.Name)
	}
	return 0, nil
}

// foreignPod is a Pod of another namespace, and the address in the slice that leads to it.
type foreignPod struct {
	ip  string
	pod *corev1.Pod
}

// eventMessage returns the message of the Event on the slice.
func eventMessage(list []foreignPod) string {
	var ips []string
	for _, x := range list {
		ips = append(ips, x.ip)
	}
	slices.Sort(ips)
	ips = slices.Compact(ips)
	switch n := len(ips); {
	case n == 1:
		return ips[0] + " is the address of a Pod in another namespace"
	case n > maxListed:
		return fmt.Sprintf("%s and %d more are addresses of Pods in other namespaces", strings.Join(ips[:maxListed], ", "), n-maxListed)
	}
	return strings.Join(ips, ", ") + " are addresses of Pods in other namespaces"
}

// hasOwnAddress reports whether a Pod has an address of its own and has not finished.
func hasOwnAddress(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func isHandWritten(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelManagedBy] != managedByController
}

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

func addressesOfPod(p *corev1.Pod) (out []string) {
	for _, i := range p.Status.PodIPs {
		if ip, err := netip.ParseAddr(i.IP); err == nil {
			out = append(out, ip.Unmap().String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// byIP indexes reachable Pods by their addresses.
func byIP() client.Index {
	return client.Index{Name: "ownAddress", Values: func(o kind.Object) []string {
		if p, ok := o.(*corev1.Pod); ok && hasOwnAddress(p) {
			return addressesOfPod(p)
		}
		return nil
	}}
}

// byAddress indexes slices that were written by hand by the addresses in them.
func byAddress() client.Index {
	return client.Index{Name: "addressByHand", Values: func(o kind.Object) []string {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok && isHandWritten(s) {
			return addresses(s)
		}
		return nil
	}}
}

// slicesWithAddressOf yields the slices of other namespaces that contain an address of a Pod.
func slicesWithAddressOf(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		p, ok := o.(*corev1.Pod)
		if !ok {
			return
		}
		for _, ip := range addressesOfPod(p) {
			for s := range c.View(gr.EndpointSlices).By(byAddress(), ip) {
				if s.GetNamespace() != p.Namespace && !yield(control.KeyOf(s)) {
					return
				}
			}
		}
	}
}

func isRelevantSliceChange(old, now kind.Object) bool {
	b, ok := now.(*discoveryv1.EndpointSlice)
	if !ok || b == nil || !isHandWritten(b) {
		return false
	}
	a, _ := old.(*discoveryv1.EndpointSlice)
	return a == nil || !isHandWritten(a) || !apiequality.Semantic.DeepEqual(addresses(a), addresses(b))
}

// hasNewAddress reports whether a Pod has got an address.
func hasNewAddress(old, now kind.Object) bool {
	b, ok := now.(*corev1.Pod)
	if !ok || b == nil || len(b.Status.PodIPs) == 0 {
		return false
	}
	a, _ := old.(*corev1.Pod)
	return a == nil || !slices.Equal(addressesOfPod(a), addressesOfPod(b))
}
