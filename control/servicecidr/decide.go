package servicecidr

import (
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	allocator = "ipallocator.k8s.io"
	// grace is how long a range is kept although it can be deleted, so that all allocators have seen its deletion.
	grace = 10 * time.Second
)

// plan is what to do with a range.
type plan struct {
	finalizers *[]string // nil for no change
	conditions []metav1.Condition
	again      time.Duration
}

// decide returns what to do with a range, given all ranges.
func decide(r *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses func() []*networkingv1.IPAddress, now time.Time) plan {
	hasFinalizer := slices.Contains(r.Finalizers, finalizer)
	if r.DeletionTimestamp == nil {
		p := plan{conditions: conditionsWith(r, metav1.ConditionTrue, "", "Kubernetes Service CIDR is ready", now)}
		if !hasFinalizer {
			p.finalizers = new(append(slices.Clone(r.Finalizers), finalizer))
		}
		return p
	}
	if !hasFinalizer {
		return plan{}
	}
	others := remainingRanges(r, all)
	if !isCovered(r, others) && isNeeded(r, others, addresses()) {
		return plan{conditions: conditionsWith(r, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR", now)}
	}
	if left := grace - now.Sub(r.DeletionTimestamp.Time); left > 0 {
		return plan{again: left}
	}
	return plan{finalizers: new(slices.DeleteFunc(slices.Clone(r.Finalizers), func(f string) bool { return f == finalizer }))}
}

// conditionsWith returns the conditions with the condition Ready, or nil if they have it already. The reason may be empty, as it is
// upstream.
func conditionsWith(r *networkingv1.ServiceCIDR, status metav1.ConditionStatus, reason, message string, now time.Time) []metav1.Condition {
	want := metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(now),
	}
	have := meta.FindStatusCondition(r.Status.Conditions, want.Type)
	if have != nil && have.Status == status && have.Reason == reason && have.Message == message {
		return nil
	}
	out := slices.Clone(r.Status.Conditions)
	meta.SetStatusCondition(&out, want)
	return out
}

// remainingRanges returns the other ranges that can take over the addresses of one that is being deleted. Of two that are being deleted,
// only one may rely on the other: the smaller one, and of equal ones the one whose name sorts last.
func remainingRanges(r *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR) []*networkingv1.ServiceCIDR {
	return slices.DeleteFunc(slices.Clone(all), func(o *networkingv1.ServiceCIDR) bool {
		if o.Name == r.Name || o.DeletionTimestamp == nil {
			return o.Name == r.Name
		}
		larger := isCovered(r, []*networkingv1.ServiceCIDR{o})
		smaller := isCovered(o, []*networkingv1.ServiceCIDR{r})
		return !larger || (smaller && o.Name > r.Name)
	})
}

// isCovered reports whether every prefix of a range is inside another range.
func isCovered(r *networkingv1.ServiceCIDR, others []*networkingv1.ServiceCIDR) bool {
	for _, p := range prefixes(r) {
		inside := func(o *networkingv1.ServiceCIDR) bool {
			return slices.ContainsFunc(prefixes(o), func(q netip.Prefix) bool { return q.Overlaps(p) && q.Bits() <= p.Bits() })
		}
		if !slices.ContainsFunc(others, inside) {
			return false
		}
	}
	return true
}

// isNeeded reports whether an allocated address is in a range, and in no other.
func isNeeded(r *networkingv1.ServiceCIDR, others []*networkingv1.ServiceCIDR, addresses []*networkingv1.IPAddress) bool {
	return slices.ContainsFunc(addresses, func(a *networkingv1.IPAddress) bool {
		ip, ok := allocated(a)
		return ok && contains(r, ip) && !slices.ContainsFunc(others, func(o *networkingv1.ServiceCIDR) bool { return contains(o, ip) })
	})
}

// allocated returns the address of an IPAddress, and whether it is allocated to a Service.
func allocated(a *networkingv1.IPAddress) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(a.Name)
	return ip, err == nil && a.Labels[networkingv1.LabelManagedBy] == allocator
}

// contains reports whether an address can be allocated from a range: not its first address, and not its last one in IPv4.
func contains(r *networkingv1.ServiceCIDR, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes(r), func(p netip.Prefix) bool {
		if !p.Contains(ip) || p.Masked().Addr() == ip {
			return false
		}
		return ip.Is6() || p.Contains(ip.Next())
	})
}

func prefixes(r *networkingv1.ServiceCIDR) (out []netip.Prefix) {
	for _, text := range r.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}
