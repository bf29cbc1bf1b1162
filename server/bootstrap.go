package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/server/authz/bootstrap"
)

// Seed is what every cluster begins with.
type Seed struct {
	// ServiceCIDRs are the ranges of cluster IPs, one or one a family.
	ServiceCIDRs []netip.Prefix
	// Address is where the Service default/kubernetes leads.
	Address netip.AddrPort
	// Policy is the RBAC policy every cluster has.
	Policy *bootstrap.Policy
	// Objects are further objects that are made when they are absent.
	Objects []Seedling
}

// Seedling is one object of a seed.
type Seedling struct {
	Resource schema.GroupResource
	Object   kind.Object
}

// Plant makes the objects that every cluster begins with, under the given identity. It is safe to repeat.
func Plant(ctx context.Context, c client.Client, rbac *RBACView, s Seed) error {
	var first []Seedling
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		first = append(first, Seedling{schema.GroupResource{Resource: "namespaces"}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}})
	}
	first = append(first, serviceCIDR(s))
	if err := plantAll(ctx, c, first); err != nil {
		return err
	}
	if err := readyCIDR(ctx, c); err != nil {
		return err
	}
	if err := rbac.Wait(ctx); err != nil {
		return err
	}
	steps := bootstrap.Reconcile(rbac, s.Policy)
	rest := append([]Seedling{}, s.Objects...)
	var changes []func() error
	rest, changes = stepped(ctx, c, rest, changes, "clusterroles", steps.ClusterRoles)
	rest, changes = stepped(ctx, c, rest, changes, "clusterrolebindings", steps.ClusterRoleBindings)
	rest, changes = stepped(ctx, c, rest, changes, "roles", steps.Roles)
	rest, changes = stepped(ctx, c, rest, changes, "rolebindings", steps.RoleBindings)
	for _, change := range changes {
		if err := change(); err != nil {
			return err
		}
	}
	rest = append(append(rest, front(s)...), criticalClasses()...)
	return plantAll(ctx, c, rest)
}

// stepped turns the steps of the RBAC policy into objects to plant and changes to make.
func stepped[T any, P interface {
	*T
	kind.Object
}](ctx context.Context, c client.Client, rest []Seedling, changes []func() error, resource string, steps []bootstrap.Step[P]) ([]Seedling, []func() error) {
	gr := rbacResource(resource)
	for _, st := range steps {
		switch st.Op {
		case bootstrap.Create:
			rest = append(rest, Seedling{gr, st.Object})
		case bootstrap.Update:
			changes = append(changes, func() error { _, err := c.Update(ctx, gr, st.Object, ""); return err })
		case bootstrap.Recreate:
			changes = append(changes, func() error {
				if err := c.Delete(ctx, gr, st.Object.GetNamespace(), st.Object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				_, err := c.Create(ctx, gr, st.Object)
				return err
			})
		}
	}
	return rest, changes
}

// plantAll creates objects side by side, so that they share the disk's flushes.
func plantAll(ctx context.Context, c client.Client, all []Seedling) error {
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	seats := make(chan struct{}, 16)
	views := map[schema.GroupResource]client.View{}
	for _, s := range all {
		if views[s.Resource] == nil {
			v, err := c.View(ctx, s.Resource)
			if err != nil {
				return err
			}
			views[s.Resource] = v
		}
	}
	for i, s := range all {
		if _, found := views[s.Resource].Get(s.Object.GetNamespace(), s.Object.GetName()); found {
			continue
		}
		seats <- struct{}{}
		wg.Go(func() {
			defer func() { <-seats }()
			err := persist(ctx, func() error {
				_, err := c.Create(ctx, s.Resource, s.Object.DeepCopyObject().(kind.Object))
				return err
			})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				errs[i] = fmt.Errorf("create %s %s: %w", s.Resource, s.Object.GetName(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// persist tries again while the store is too busy to answer in time, as on a machine under load.
func persist(ctx context.Context, try func() error) error {
	for n := 0; ; n++ {
		err := try()
		if n == 10 || (!apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err)) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond << min(n, 4)):
		}
	}
}

// criticalClasses are the priority classes of what a cluster cannot do without.
func criticalClasses() []Seedling {
	const critical = 2_000_000_000 // above all that users may name
	gr := schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}
	return []Seedling{
		{gr, &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: critical + 1000,
			Description: "Used for system critical pods that must not be moved from their current node.",
		}},
		{gr, &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"}, Value: critical,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		}},
	}
}

func serviceCIDR(s Seed) Seedling {
	o := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
	for _, p := range s.ServiceCIDRs {
		o.Spec.CIDRs = append(o.Spec.CIDRs, p.String())
	}
	return Seedling{schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}, o}
}

// readyCIDR says that addresses of the default range are handed out, which is so from the beginning.
func readyCIDR(ctx context.Context, c client.Client) error {
	gr := schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
	v, err := c.View(ctx, gr)
	if err != nil {
		return err
	}
	have, found := v.Get("", "kubernetes")
	if !found {
		return nil
	}
	o := have.DeepCopyObject().(*networkingv1.ServiceCIDR)
	if len(o.Status.Conditions) > 0 || o.DeletionTimestamp != nil {
		return nil
	}
	o.Status.Conditions = []metav1.Condition{{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Message: "Kubernetes default Service CIDR is ready",
	}}
	_, err = c.Update(ctx, gr, o, "status")
	return err
}

// FirstIP is the address of the Service default/kubernetes.
func FirstIP(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

// front makes the Service under which Pods reach the API server, with where it leads.
func front(s Seed) []Seedling {
	ip := FirstIP(s.ServiceCIDRs[0])
	labels := map[string]string{"component": "apiserver", "provider": "kubernetes"}
	port := int32(s.Address.Port())
	family := discoveryv1.AddressTypeIPv4
	if s.Address.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: labels}
	slice := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}
	endpoints := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}}
	return []Seedling{
		{schema.GroupResource{Resource: "services"}, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			ClusterIP: ip.String(), Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
			Ports:          []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(port)}},
		}}},
		{schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}, &discoveryv1.EndpointSlice{
			ObjectMeta: slice, AddressType: family,
			Ports:     []discoveryv1.EndpointPort{{Name: new("https"), Port: &port, Protocol: new(corev1.ProtocolTCP)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{s.Address.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		}},
		{schema.GroupResource{Resource: "endpoints"}, &corev1.Endpoints{ObjectMeta: endpoints, Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: s.Address.Addr().String()}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: port, Protocol: corev1.ProtocolTCP}},
		}}}},
	}
}

// Point keeps the endpoints of default/kubernetes at the present address, after the server moved.
func Point(ctx context.Context, c client.Client, s Seed) error {
	for _, seed := range front(s)[1:] {
		v, err := c.View(ctx, seed.Resource)
		if err != nil {
			return err
		}
		have, found := v.Get("default", "kubernetes")
		if !found || pointsTo(have, s.Address) {
			continue
		}
		seed.Object.SetResourceVersion(have.GetResourceVersion())
		if _, err := c.Update(ctx, seed.Resource, seed.Object, ""); err != nil {
			return err
		}
	}
	return nil
}

func pointsTo(o kind.Object, a netip.AddrPort) bool {
	ip, port := a.Addr().String(), strconv.Itoa(int(a.Port()))
	switch o := o.(type) {
	case *discoveryv1.EndpointSlice:
		return len(o.Endpoints) == 1 && len(o.Ports) == 1 && o.Endpoints[0].Addresses[0] == ip && strconv.Itoa(int(*o.Ports[0].Port)) == port
	case *corev1.Endpoints:
		return len(o.Subsets) == 1 && len(o.Subsets[0].Addresses) == 1 && o.Subsets[0].Addresses[0].IP == ip && strconv.Itoa(int(o.Subsets[0].Ports[0].Port)) == port
	}
	return true
}
