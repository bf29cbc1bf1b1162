package initialobjects

import (
	"context"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// apiServerService returns the Service under which Pods reach the API server, with its EndpointSlice and Endpoints.
func apiServerService(s Settings) []Object {
	ip := FirstIP(s.ServiceCIDRs[0])
	labels := map[string]string{"component": "apiserver", "provider": "kubernetes"}
	port := int32(s.Address.Port())
	family := discoveryv1.AddressTypeIPv4
	if s.Address.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: labels}
	slice := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes",
		Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}
	endpoints := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}}
	return []Object{
		{schema.GroupResource{Resource: "services"}, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			ClusterIP: ip.String(), Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
			Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443,
				TargetPort: intstr.FromInt32(port)}},
		}}},
		{schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}, &discoveryv1.EndpointSlice{
			ObjectMeta: slice, AddressType: family,
			Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: &port, Protocol: new(corev1.ProtocolTCP)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{s.Address.Addr().String()},
				Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		}},
		{schema.GroupResource{Resource: "endpoints"}, &corev1.Endpoints{ObjectMeta: endpoints, Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: s.Address.Addr().String()}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: port, Protocol: corev1.ProtocolTCP}},
		}}}},
	}
}

// FirstIP returns the first address of a range, which is the cluster IP of the Service default/kubernetes.
func FirstIP(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

// UpdateAddress sets the endpoints of the Service default/kubernetes to the present address of the server.
func UpdateAddress(ctx context.Context, c client.Client, s Settings) error {
	for _, seed := range apiServerService(s)[1:] {
		v, err := c.View(ctx, seed.Resource)
		if err != nil {
			return err
		}
		have, found := v.Get("default", "kubernetes")
		if !found || leadsTo(have, s.Address) {
			continue
		}
		seed.Object.SetResourceVersion(have.GetResourceVersion())
		if _, err := c.Update(ctx, seed.Resource, seed.Object, ""); err != nil {
			return err
		}
	}
	return nil
}

// leadsTo says that endpoints have exactly this address and port.
func leadsTo(o kind.Object, a netip.AddrPort) bool {
	ip, port := a.Addr().String(), strconv.Itoa(int(a.Port()))
	switch o := o.(type) {
	case *discoveryv1.EndpointSlice:
		return len(o.Endpoints) == 1 && len(o.Ports) == 1 && o.Endpoints[0].Addresses[0] == ip &&
			strconv.Itoa(int(*o.Ports[0].Port)) == port
	case *corev1.Endpoints:
		return len(o.Subsets) == 1 && len(o.Subsets[0].Addresses) == 1 && o.Subsets[0].Addresses[0].IP == ip &&
			strconv.Itoa(int(o.Subsets[0].Ports[0].Port)) == port
	}
	return true
}
