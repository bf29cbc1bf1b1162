package servicekind

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/kind"
)

// defaultServiceCIDR is the name of the ServiceCIDR that the server creates.
const defaultServiceCIDR = "kubernetes"

// addressManager is the label value of an IPAddress that belongs to a service.
const addressManager = "ipallocator.k8s.io"

var (
	errFull         = errors.New("range is full")
	errAddressTaken = errors.New("provided IP is already allocated")
	errOutsideRange = errors.New("the provided network does not match the current range")
)

func servicesResource() schema.GroupResource { return schema.GroupResource{Resource: "services"} }

func addressesResource() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ipaddresses"}
}

// beginService allocates cluster IPs and node ports for a service, and releases those that it no longer has, in the
// transaction that writes or removes it.
func beginService(ctx context.Context, tx kind.Txn, s, old *corev1.Service) error {
	if s == nil {
		releaseAll(tx, old)
		return nil
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		s.Spec.InternalTrafficPolicy = nil // older servers set it by default, which was a mistake
		alignClusterIPs(s, nil)
	}
	if old != nil && equality.Semantic.DeepEqual(s.Spec, old.Spec) {
		return nil
	}
	ranges, err := serviceRanges(ctx, tx)
	if err != nil {
		return err
	}
	kept := keepsPreference(s, old)
	if errs := completeFamilies(s, old, ranges.families()); len(errs) > 0 {
		return invalidService(s, errs)
	}
	if !kept {
		requests, released := addressChanges(s, old)
		if err := allocateAddresses(ctx, tx, s, requests, ranges); err != nil {
			return err
		}
		for _, ip := range released {
			releaseAddress(tx, ip)
		}
	}
	if !hasNodePorts(s) && (old == nil || !hasNodePorts(old)) {
		return nil
	}
	taken, err := takenPorts(ctx, tx)
	if err != nil {
		return err
	}
	p := &portPlan{dryRun: tx.DryRun(), taken: taken, random: rand.Uint64N}
	if err := p.plan(s, old); err != nil {
		return toStatusError(s, err)
	}
	p.commit(tx, s)
	return nil
}

// toStatusError returns an error about a field as the API's Invalid error.
func toStatusError(s *corev1.Service, err error) error {
	if bad, ok := errors.AsType[*field.Error](err); ok {
		return invalidService(s, field.ErrorList{bad})
	}
	return err
}

func invalidService(s *corev1.Service, errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, s.Name, errs)
}

// releaseAll releases all addresses and node ports of a deleted service.
func releaseAll(tx kind.Txn, s *corev1.Service) {
	if hasAddress(s) && !isHeadless(s) {
		for _, ip := range s.Spec.ClusterIPs {
			releaseAddress(tx, ip)
		}
	}
	ports := nodePortsOf(s)
	if needsHealthPort(s) && s.Spec.HealthCheckNodePort > 0 {
		ports = append(ports, int(s.Spec.HealthCheckNodePort))
	}
	slices.Sort(ports)
	for _, port := range slices.Compact(ports) {
		tx.Release(nodePortKey(port))
	}
}

func releaseAddress(tx kind.Txn, ip string) {
	if parsed := netutils.ParseIPSloppy(ip); parsed != nil {
		tx.Delete(addressesResource(), "", parsed.String())
	}
}

// ranges are the networks of cluster IPs, those of the default ServiceCIDR first.
type ranges []serviceRange

type serviceRange struct {
	netip.Prefix
	ready bool // new addresses may be allocated from it
}

func (r serviceRange) family() corev1.IPFamily {
	if r.Addr().Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// families returns the IP families of the cluster, the default one first.
func (r ranges) families() []corev1.IPFamily {
	var list []corev1.IPFamily
	for _, x := range r {
		if f := x.family(); !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		list = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return list
}

// serviceRanges reads the ServiceCIDRs. A ServiceCIDR without a Ready condition is ready; the default one always is.
func serviceRanges(ctx context.Context, d kind.Server) (ranges, error) {
	objects, err := d.List(ctx, schema.GroupResource{Group: networkingv1.GroupName, Resource: "servicecidrs"}, "")
	if err != nil {
		return nil, fmt.Errorf("list the service CIDRs: %w", err)
	}
	var all []*networkingv1.ServiceCIDR
	for o := range objects {
		if c, ok := o.(*networkingv1.ServiceCIDR); ok {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *networkingv1.ServiceCIDR) int {
		if a.Name == defaultServiceCIDR || b.Name == defaultServiceCIDR {
			if a.Name == b.Name {
				return 0
			}
			if a.Name == defaultServiceCIDR {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	var list ranges
	for _, c := range all {
		ready := c.DeletionTimestamp.IsZero() &&
			(c.Name == defaultServiceCIDR || !slices.ContainsFunc(c.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == networkingv1.ServiceCIDRConditionReady && c.Status != metav1.ConditionTrue
			}))
		for _, text := range c.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				list = append(list, serviceRange{p.Masked(), ready})
			}
		}
	}
	return list, nil
}

// addressRequest is an address to allocate: its index in the list, and the address if the client chose it.
type addressRequest struct {
	index  int
	family corev1.IPFamily
	ip     string
}

// addressChanges returns the addresses to allocate and those to release for a service whose families are complete. It
// extends spec.clusterIPs for each address to allocate.
func addressChanges(s, old *corev1.Service) (requests []addressRequest, released []string) {
	spec := &s.Spec
	want := func(i int) {
		if i >= len(spec.ClusterIPs) {
			spec.ClusterIPs = append(spec.ClusterIPs, "")
		}
		requests = append(requests, addressRequest{i, spec.IPFamilies[i], spec.ClusterIPs[i]})
	}
	switch {
	case old == nil || !hasAddress(old):
		if !hasAddress(s) || len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] == corev1.ClusterIPNone {
			return nil, nil
		}
		for i := range spec.IPFamilies {
			want(i)
		}
	case len(old.Spec.ClusterIPs) > 0 && old.Spec.ClusterIPs[0] == corev1.ClusterIPNone:
	case !hasAddress(s):
		released = slices.Clone(old.Spec.ClusterIPs)
	case len(old.Spec.IPFamilies) == 1 && len(spec.IPFamilies) == 2:
		want(1)
	case len(old.Spec.IPFamilies) == 2 && len(spec.IPFamilies) == 1 && len(old.Spec.ClusterIPs) == 2:
		released = old.Spec.ClusterIPs[1:]
	}
	return requests, released
}

// allocateAddresses allocates each address and adds its IPAddress to the transaction.
func allocateAddresses(ctx context.Context, tx kind.Txn, s *corev1.Service, requests []addressRequest, ranges ranges) error {
	for _, w := range requests {
		ip, asked := w.ip, w.ip != ""
		refused := func(err error) error {
			return invalidService(s, field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), slices.Clone(s.Spec.ClusterIPs),
				fmt.Sprintf("failed to allocate IP %v: %v", w.ip, err))})
		}
		var address netip.Addr
		var err error
		if asked {
			if address, err = checkRequestedAddress(ctx, tx, w, ranges); err != nil {
				return refused(err)
			}
		} else {
			if address, err = chooseAddress(ctx, tx, w.family, ranges); err != nil {
				return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w", s.Name, err))
			}
			ip = address.String()
		}
		if !tx.DryRun() {
			var taken error // nil: Begin runs again, to choose another address
			if asked {
				taken = refused(errAddressTaken)
			}
			tx.Create(addressesResource(), addressObject(s, address, w.family), taken)
		}
		s.Spec.ClusterIPs[w.index] = ip
		if w.index == 0 {
			s.Spec.ClusterIP = ip
		}
	}
	return nil
}

func addressObject(s *corev1.Service, address netip.Addr, family corev1.IPFamily) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: address.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(family),
			networkingv1.LabelManagedBy:       addressManager,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: s.Namespace,
			Name: s.Name}},
	}
}

// checkRequestedAddress checks an address that the client chose. A dry run checks the default range only.
func checkRequestedAddress(ctx context.Context, tx kind.Txn, w addressRequest, ranges ranges) (netip.Addr, error) {
	parsed, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(w.ip))
	ip := parsed.Unmap()
	for _, r := range ranges {
		if r.family() != w.family {
			continue
		}
		if tx.DryRun() {
			if !isAssignable(r.Prefix, ip) {
				return ip, fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", ip, r.Prefix)
			}
			return ip, nil
		}
		if !r.ready || !isAssignable(r.Prefix, ip) {
			continue
		}
		if used, err := addressUsed(ctx, tx, ip); err != nil || used {
			return ip, errors.Join(err, errAddressTaken)
		}
		return ip, nil
	}
	return ip, errOutsideRange
}

// chooseAddress chooses a free address. A dry run shows the address of the network itself, which no service ever has.
func chooseAddress(ctx context.Context, tx kind.Txn, family corev1.IPFamily, ranges ranges) (netip.Addr, error) {
	var failed error
	taken := func(ip netip.Addr) bool {
		used, err := addressUsed(ctx, tx, ip)
		if err != nil {
			failed = err
			return false
		}
		return used
	}
	for _, r := range ranges {
		if r.family() != family || !r.ready {
			continue
		}
		if tx.DryRun() {
			return r.Addr(), nil
		}
		if ip, ok := pickAddress(r.Prefix, taken, rand.Uint64N); ok {
			return ip, failed
		}
	}
	return netip.Addr{}, errFull
}

func addressUsed(ctx context.Context, d kind.Server, ip netip.Addr) (bool, error) {
	_, err := d.Get(ctx, addressesResource(), "", ip.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
