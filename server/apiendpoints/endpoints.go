// Package apiendpoints lets the Service default/kubernetes lead to the API servers that are alive. Servers that share a store have a
// lease each, which is a key that expires, and every one of them keeps the endpoints as the leases say.
package apiendpoints

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// serviceName is the name of the Service, in the namespace default.
const serviceName = "kubernetes"

// FirstIP returns the first address of a range, which is the cluster IP of the Service default/kubernetes.
func FirstIP(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

// Service returns the Service under which Pods reach the API servers, in the first range of cluster IPs. Servers listen at port.
func Service(cidr netip.Prefix, port uint16) *corev1.Service {
	labels := map[string]string{"component": "apiserver", "provider": "kubernetes"}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: serviceName, Labels: labels},
		Spec: corev1.ServiceSpec{
			ClusterIP: FirstIP(cidr).String(), Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
			Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443,
				TargetPort: intstr.FromInt32(int32(port))}},
		},
	}
}

// group is an IP family and a port: what all endpoints of a slice have in common.
type group struct {
	family discoveryv1.AddressType
	port   int32
}

func groupOf(a netip.AddrPort) group {
	if a.Addr().Is6() {
		return group{discoveryv1.AddressTypeIPv6, int32(a.Port())}
	}
	return group{discoveryv1.AddressTypeIPv4, int32(a.Port())}
}

// endpointSlices returns the EndpointSlices that lead to the servers. The first, which is named like the Service, has the servers of the
// IP family of the Service at the lowest port; there are more only where servers have different ports or families.
func endpointSlices(servers []netip.AddrPort, primary discoveryv1.AddressType) (out []*discoveryv1.EndpointSlice) {
	byGroup := map[group]*discoveryv1.EndpointSlice{}
	for _, a := range servers {
		g := groupOf(a)
		if byGroup[g] == nil {
			byGroup[g] = &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: metav1.NamespaceDefault,
					Name:      fmt.Sprintf("%s-%s-%d", serviceName, strings.ToLower(string(g.family)), g.port),
					Labels:    map[string]string{discoveryv1.LabelServiceName: serviceName},
				},
				AddressType: g.family,
				Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(g.port), Protocol: new(corev1.ProtocolTCP)}},
			}
			out = append(out, byGroup[g])
		}
		byGroup[g].Endpoints = append(byGroup[g].Endpoints, discoveryv1.Endpoint{Addresses: []string{a.Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	slices.SortStableFunc(out, func(a, b *discoveryv1.EndpointSlice) int {
		switch first := primary; {
		case a.AddressType == b.AddressType:
			return int(*a.Ports[0].Port - *b.Ports[0].Port)
		case a.AddressType == first:
			return -1
		}
		return 1
	})
	if len(out) > 0 {
		out[0].Name = serviceName
	}
	return out
}

// isOwnSlice reports whether the name of a slice is one that endpointSlices gives.
func isOwnSlice(name string) bool {
	return name == serviceName || strings.HasPrefix(name, serviceName+"-ipv4-") || strings.HasPrefix(name, serviceName+"-ipv6-")
}

// endpoints returns the Endpoints that lead to the servers.
func endpoints(servers []netip.AddrPort) *corev1.Endpoints {
	out := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: serviceName,
		Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}}}
	for _, a := range servers {
		port := int32(a.Port())
		i := slices.IndexFunc(out.Subsets, func(s corev1.EndpointSubset) bool { return s.Ports[0].Port == port })
		if i < 0 {
			i = len(out.Subsets)
			out.Subsets = append(out.Subsets, corev1.EndpointSubset{
				Ports: []corev1.EndpointPort{{Name: "https", Port: port, Protocol: corev1.ProtocolTCP}}})
		}
		out.Subsets[i].Addresses = append(out.Subsets[i].Addresses, corev1.EndpointAddress{IP: a.Addr().String()})
	}
	return out
}

// write makes the endpoints lead to exactly these servers, which are sorted. What is right already is not written. Slices that lead
// to servers are written before others are deleted, so that no server is missing meanwhile.
func write(ctx context.Context, c client.Client, servers []netip.AddrPort, primary discoveryv1.AddressType) error {
	have, err := c.View(ctx, gr.EndpointSlices)
	if err != nil {
		return err
	}
	wanted := endpointSlices(servers, primary)
	for _, slice := range wanted {
		o, found := have.Get(slice.Namespace, slice.Name)
		if found && o.(*discoveryv1.EndpointSlice).AddressType != slice.AddressType { // it cannot be changed
			if err := deleteSeen(ctx, c, o); err != nil {
				return err
			}
			found = false
		}
		if err := writeIfDifferent(ctx, c, gr.EndpointSlices, o, found, slice); err != nil {
			return err
		}
	}
	for o := range have.List(metav1.NamespaceDefault) {
		name := o.GetName()
		if o.GetLabels()[discoveryv1.LabelServiceName] == serviceName && isOwnSlice(name) &&
			!slices.ContainsFunc(wanted, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name }) {
			if err := deleteSeen(ctx, c, o); err != nil {
				return err
			}
		}
	}
	old, err := c.View(ctx, gr.Endpoints)
	if err != nil {
		return err
	}
	o, found := old.Get(metav1.NamespaceDefault, serviceName)
	return writeIfDifferent(ctx, c, gr.Endpoints, o, found, endpoints(servers))
}

// deleteSeen deletes an object unless it has changed since it was read.
func deleteSeen(ctx context.Context, c client.Client, o kind.Object) error {
	rev := o.GetResourceVersion()
	return c.Delete(ctx, gr.EndpointSlices, o.GetNamespace(), o.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &rev}})
}

// writeIfDifferent creates an object, or replaces what leads to other servers than it does.
func writeIfDifferent(ctx context.Context, c client.Client, on schema.GroupResource, have kind.Object, found bool, want kind.Object) error {
	if !found {
		_, err := c.Create(ctx, on, want)
		return err
	}
	if leadsToSame(have, want) {
		return nil
	}
	want.SetResourceVersion(have.GetResourceVersion())
	_, err := c.Update(ctx, on, want, "")
	return err
}

// leadsToSame reports whether two objects of one kind have the same addresses and ports.
func leadsToSame(have, want kind.Object) bool {
	switch have := have.(type) {
	case *discoveryv1.EndpointSlice:
		want := want.(*discoveryv1.EndpointSlice)
		return have.Labels[discoveryv1.LabelServiceName] == serviceName && len(have.Ports) == 1 && have.Ports[0].Port != nil &&
			*have.Ports[0].Port == *want.Ports[0].Port && equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints)
	case *corev1.Endpoints:
		return equality.Semantic.DeepEqual(have.Subsets, want.(*corev1.Endpoints).Subsets)
	}
	return false
}

// isOvertaken reports whether a write failed because another server has written the same object.
func isOvertaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}
