package servicekind

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"proa.dev/kinds/kind"
)

// connectService proxies to one of the endpoints of a service.
func connectService(ctx context.Context, d kind.Server, c *kind.Connection) (*kind.Target, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(c.Name)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", c.Name))
	}
	if number, err := strconv.ParseInt(port, 10, 64); err == nil {
		o, err := d.Get(ctx, schema.GroupResource{Resource: "services"}, c.Namespace, name)
		if err != nil {
			return nil, err
		}
		ports := o.(*corev1.Service).Spec.Ports
		at := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return int64(p.Port) == number })
		if at < 0 {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, name))
		}
		port = ports[at].Name
	}
	all, err := d.List(ctx, schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, c.Namespace)
	if all == nil {
		return nil, apierrors.NewInternalError(err)
	}
	var behind []*discoveryv1.EndpointSlice
	for o := range all {
		if o.GetLabels()[discoveryv1.LabelServiceName] == name {
			behind = append(behind, o.(*discoveryv1.EndpointSlice))
		}
	}
	var on string
	host := chooseEndpoint(behind, port, func(e *discoveryv1.Endpoint) (is bool) {
		on, is = findPodNode(ctx, d, c.Namespace, e)
		return is
	})
	if host == "" {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return &kind.Target{Scheme: scheme, Host: host, NodeName: on, Path: c.Path, Shape: kind.Proxy}, nil
}

// chooseEndpoint returns the address of a random endpoint that is ready, has the port and satisfies good; IPv4 addresses
// are preferred.
func chooseEndpoint(behind []*discoveryv1.EndpointSlice, port string, good func(*discoveryv1.Endpoint) bool) string {
	rand.Shuffle(len(behind), func(i, j int) { behind[i], behind[j] = behind[j], behind[i] })
	slices.SortStableFunc(behind, func(a, b *discoveryv1.EndpointSlice) int {
		return familyRank(a.AddressType) - familyRank(b.AddressType)
	})
	for _, s := range behind {
		for _, p := range s.Ports {
			if p.Name == nil || *p.Name != port || p.Port == nil || len(s.Endpoints) == 0 {
				continue
			}
			first := rand.IntN(len(s.Endpoints)) //nolint:gosec // G404: it spreads load
			for i := range s.Endpoints {
				e := &s.Endpoints[(first+i)%len(s.Endpoints)]
				if (e.Conditions.Ready == nil || *e.Conditions.Ready) && len(e.Addresses) > 0 && good(e) {
					return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port)))
				}
			}
		}
	}
	return ""
}

func familyRank(t discoveryv1.AddressType) int {
	if t == discoveryv1.AddressTypeIPv4 {
		return 0
	}
	return 1
}

// findPodNode reports whether an endpoint is the address of the pod that it names, and returns the node of that pod. Users
// who may write endpoints must not be able to make the server connect to anything else.
func findPodNode(ctx context.Context, d kind.Server, namespace string, e *discoveryv1.Endpoint) (node string, is bool) {
	if e.TargetRef == nil || e.TargetRef.Namespace != namespace {
		return "", false
	}
	o, err := d.Get(ctx, schema.GroupResource{Resource: "pods"}, namespace, e.TargetRef.Name)
	if err != nil {
		return "", false
	}
	p := o.(*corev1.Pod)
	ip := net.ParseIP(e.Addresses[0])
	return p.Spec.NodeName, ip != nil && ip.IsGlobalUnicast() &&
		slices.ContainsFunc(p.Status.PodIPs, func(i corev1.PodIP) bool { return i.IP == e.Addresses[0] })
}
