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
	// grace is how long a range that may go stays, so that whoever hands out addresses has seen that it goes.
	grace = 10 * time.Second
)

// plan is what to do about a range.
type plan struct {
	finalizers *[]string // nil for as they are
	conditions []metav1.Condition
	again      time.Duration
}

// decide says what to do about a range among all.
func decide(r *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses func() []*networkingv1.IPAddress, now time.Time) plan {
	held := slices.Contains(r.Finalizers, finalizer)
	if r.DeletionTimestamp == nil {
		p := plan{conditions: condition(r, metav1.ConditionTrue, "", "Kubernetes Service CIDR is ready", now)}
		if !held {
			p.finalizers = new(append(slices.Clone(r.Finalizers), finalizer))
		}
		return p
	}
	if !held {
		return plan{}
	}
	others := stay(r, all)
	if !covered(r, others) && needed(r, others, addresses()) {
		return plan{conditions: condition(r, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR", now)}
	}
	if left := grace - now.Sub(r.DeletionTimestamp.Time); left > 0 {
		return plan{again: left}
	}
	return plan{finalizers: new(slices.DeleteFunc(slices.Clone(r.Finalizers), func(f string) bool { return f == finalizer }))}
}

// condition returns the conditions with a new one, or nil when it is there already. The reason may be empty, as it always was.
func condition(r *networkingv1.ServiceCIDR, status metav1.ConditionStatus, reason, message string, now time.Time) []metav1.Condition {
	want := metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
	}
	have := meta.FindStatusCondition(r.Status.Conditions, want.Type)
	if have != nil && have.Status == status && have.Reason == reason && have.Message == message {
		return nil
	}
	out := slices.Clone(r.Status.Conditions)
	meta.SetStatusCondition(&out, want)
	return out
}

// stay are the other ranges that may take over the addresses of one that goes. Of two that go only one may count on the other:
// the smaller one, and of equals the one whose name is last.
func stay(r *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR) []*networkingv1.ServiceCIDR {
	return slices.DeleteFunc(slices.Clone(all), func(o *networkingv1.ServiceCIDR) bool {
		if o.Name == r.Name || o.DeletionTimestamp == nil {
			return o.Name == r.Name
		}
		larger := covered(r, []*networkingv1.ServiceCIDR{o})
		smaller := covered(o, []*networkingv1.ServiceCIDR{r})
		return !larger || (smaller && o.Name > r.Name)
	})
}

// covered says that every part of a range is inside others.
func covered(r *networkingv1.ServiceCIDR, others []*networkingv1.ServiceCIDR) bool {
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

// needed says that an address is in a range, and in no other.
func needed(r *networkingv1.ServiceCIDR, others []*networkingv1.ServiceCIDR, addresses []*networkingv1.IPAddress) bool {
	return slices.ContainsFunc(addresses, func(a *networkingv1.IPAddress) bool {
		ip, ok := allocated(a)
		return ok && holds(r, ip) && !slices.ContainsFunc(others, func(o *networkingv1.ServiceCIDR) bool { return holds(o, ip) })
	})
}

// allocated is an address that was given to a Service.
func allocated(a *networkingv1.IPAddress) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(a.Name)
	return ip, err == nil && a.Labels[networkingv1.LabelManagedBy] == allocator
}

// holds says that an address can be given out of a range: not its first, and with version 4 not its last.
func holds(r *networkingv1.ServiceCIDR, ip netip.Addr) bool {
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
