package gatewayplan

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// condition returns a condition with the status good, or the opposite status if there is a problem.
func condition[T ~string](kind T, good metav1.ConditionStatus, reason string, v Problem) metav1.Condition {
	c := metav1.Condition{Type: string(kind), Status: good, Reason: reason}
	if !v.IsZero() {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v.Reason, v.Message
		if good == metav1.ConditionFalse {
			c.Status = metav1.ConditionTrue
		}
	}
	return c
}

// mergeConditions returns the old conditions updated with those in list. lastTransitionTime changes only with the status.
func mergeConditions(old []metav1.Condition, generation int64, now time.Time, list ...metav1.Condition) []metav1.Condition {
	out := slices.Clone(old)
	for _, c := range list {
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.NewTime(now)
		meta.SetStatusCondition(&out, c)
	}
	return out
}

// ClassStatus returns the status of a GatewayClass of this controller.
func ClassStatus(c *gw.GatewayClass, now time.Time) gw.GatewayClassStatus {
	out := *c.Status.DeepCopy()
	var v Problem
	if p := c.Spec.ParametersRef; p != nil {
		v = Problem{string(gw.GatewayClassReasonInvalidParameters), "there are no parameters of the kind " + string(p.Kind) + " here"}
	}
	out.Conditions = mergeConditions(c.Status.Conditions, c.Generation, now,
		condition(gw.GatewayClassConditionStatusAccepted, metav1.ConditionTrue, string(gw.GatewayClassReasonAccepted), v),
		condition(gw.GatewayClassConditionStatusSupportedVersion, metav1.ConditionTrue, string(gw.GatewayClassReasonSupportedVersion),
			Problem{}))
	out.SupportedFeatures = nil
	for _, name := range Features() {
		out.SupportedFeatures = append(out.SupportedFeatures, gw.SupportedFeature{Name: gw.FeatureName(name)})
	}
	return out
}

// Placement is where clients reach a Gateway.
type Placement struct {
	Addresses []string
	// Problem is why clients cannot reach the Gateway.
	Problem Problem
}

// GatewayStatus returns the status of a Gateway.
func GatewayStatus(g *Gateway, at Placement, now time.Time) gw.GatewayStatus {
	out := gw.GatewayStatus{AttachedListenerSets: g.Status.AttachedListenerSets}
	for _, a := range at.Addresses {
		out.Addresses = append(out.Addresses, gw.GatewayStatusAddress{Type: new(gw.IPAddressType), Value: a})
	}
	good, bad := 0, 0
	for _, l := range g.listeners {
		if l.set != nil {
			continue
		}
		if l.isValid() {
			good++
		} else {
			bad++
		}
		out.Listeners = append(out.Listeners, listenerStatus(l, listenerConditions(g.Status.Listeners, l.Name), g.Generation, now))
	}
	accepted := condition(gw.GatewayConditionAccepted, metav1.ConditionTrue, string(gw.GatewayReasonAccepted), g.refused)
	if g.refused.IsZero() && bad > 0 {
		accepted.Reason, accepted.Message = string(gw.GatewayReasonListenersNotValid),
			"some listeners are not valid; their conditions say why"
		if !slices.ContainsFunc(g.listeners, func(l *listener) bool { return l.refused.IsZero() && l.conflicted.IsZero() }) {
			accepted.Status = metav1.ConditionFalse
		}
	}
	programmed := at.Problem
	serving := slices.ContainsFunc(g.listeners, func(l *listener) bool { return l.isServing() })
	switch {
	case !g.refused.IsZero():
		programmed = Problem{string(gw.GatewayReasonInvalid), g.refused.Message}
	case !serving:
		programmed = Problem{string(gw.GatewayReasonInvalid), "no listener can be served"}
	}
	list := []metav1.Condition{accepted,
		condition(gw.GatewayConditionProgrammed, metav1.ConditionTrue, string(gw.GatewayReasonProgrammed), programmed)}
	resolved := g.badReference
	if resolved.IsZero() && slices.ContainsFunc(g.listeners, func(l *listener) bool { return !l.badReference.IsZero() }) {
		resolved = Problem{string(gw.GatewayReasonListenersNotResolved), "references of some listeners do not lead to what they should; their conditions say why"}
	}
	list = append(list, condition(gw.GatewayConditionResolvedRefs, metav1.ConditionTrue, string(gw.GatewayReasonResolvedRefs), resolved))
	old := g.Status.Conditions
	if g.insecure {
		list = append(list, metav1.Condition{
			Type: string(gw.GatewayConditionInsecureFrontendValidationMode), Status: metav1.ConditionTrue,
			Reason:  string(gw.GatewayReasonConfigurationChanged),
			Message: "clients are let in whose certificate nobody vouches for",
		})
	} else {
		old = without(old, string(gw.GatewayConditionInsecureFrontendValidationMode))
	}
	if g.Spec.AllowedListeners != nil || g.sets > 0 {
		out.AttachedListenerSets = new(g.sets)
	}
	out.Conditions = mergeConditions(old, g.Generation, now, list...)
	return out
}

func without(list []metav1.Condition, kind string) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(list), func(c metav1.Condition) bool { return c.Type == kind })
}

func listenerConditions(list []gw.ListenerStatus, name gw.SectionName) []metav1.Condition {
	for _, l := range list {
		if l.Name == name {
			return l.Conditions
		}
	}
	return nil
}

// listenerStatus returns the status of a listener.
func listenerStatus(l *listener, old []metav1.Condition, generation int64, now time.Time) gw.ListenerStatus {
	accepted, programmed := l.conflicted, Problem{}
	if accepted.IsZero() {
		accepted = l.refused
	}
	if !l.isServing() || !l.badReference.IsZero() {
		programmed = Problem{cmp.Or(l.conflicted.Reason, string(gw.ListenerReasonInvalid)),
			cmp.Or(l.refused.Message, l.conflicted.Message, l.badReference.Message, l.gateway.refused.Message)}
	}
	return gw.ListenerStatus{
		Name: l.Name, SupportedKinds: l.kinds, AttachedRoutes: l.attached,
		Conditions: mergeConditions(old, generation, now,
			condition(gw.ListenerConditionAccepted, metav1.ConditionTrue, string(gw.ListenerReasonAccepted), accepted),
			condition(gw.ListenerConditionProgrammed, metav1.ConditionTrue, string(gw.ListenerReasonProgrammed), programmed),
			condition(gw.ListenerConditionResolvedRefs, metav1.ConditionTrue, string(gw.ListenerReasonResolvedRefs), l.badReference),
			condition(gw.ListenerConditionConflicted, metav1.ConditionFalse, string(gw.ListenerReasonNoConflicts), l.conflicted)),
	}
}

// ListenerSetStatus returns the status of a ListenerSet.
func ListenerSetStatus(s *ListenerSet, now time.Time) gw.ListenerSetStatus {
	out := gw.ListenerSetStatus{}
	accepted, programmed, good := s.refused, s.refused, 0
	for _, l := range s.listeners {
		var old []metav1.Condition
		for _, e := range s.Status.Listeners {
			if e.Name == l.Name {
				old = e.Conditions
			}
		}
		one := listenerStatus(l, old, s.Generation, now)
		out.Listeners = append(out.Listeners, gw.ListenerEntryStatus(one))
		if l.isValid() {
			good++
		}
	}
	if accepted.IsZero() && !s.gateway.refused.IsZero() {
		accepted = Problem{string(gw.ListenerSetReasonParentNotAccepted), s.gateway.refused.Message}
		programmed = accepted
	}
	if accepted.IsZero() && good == 0 {
		accepted = Problem{string(gw.ListenerSetReasonListenersNotValid), "no listener is valid; their conditions say why"}
		programmed = accepted
	}
	first := condition(gw.ListenerSetConditionAccepted, metav1.ConditionTrue, string(gw.ListenerSetReasonAccepted), accepted)
	if accepted.IsZero() && good < len(s.listeners) {
		first.Reason, first.Message = string(gw.ListenerSetReasonListenersNotValid),
			"some listeners are not valid; their conditions say why"
	}
	out.Conditions = mergeConditions(s.Status.Conditions, s.Generation, now, first,
		condition(gw.ListenerSetConditionProgrammed, metav1.ConditionTrue, string(gw.ListenerSetReasonProgrammed), programmed))
	return out
}

// RouteStatus returns the status of a route. Entries of other controllers stay.
func RouteStatus(r *Route, now time.Time) gw.RouteStatus {
	out := gw.RouteStatus{Parents: []gw.RouteParentStatus{}}
	for _, p := range r.status.Parents {
		if p.ControllerName != Controller {
			out.Parents = append(out.Parents, p)
		}
	}
	for _, p := range r.parents {
		var old []metav1.Condition
		for _, o := range r.status.Parents {
			if o.ControllerName == Controller && isSameParent(o.ParentRef, p.ref) {
				old = o.Conditions
			}
		}
		out.Parents = append(out.Parents,
			gw.RouteParentStatus{ParentRef: p.ref, ControllerName: Controller, Conditions: mergeConditions(old, r.GetGeneration(), now,
				condition(gw.RouteConditionAccepted, metav1.ConditionTrue, string(gw.RouteReasonAccepted), p.rejected),
				condition(gw.RouteConditionResolvedRefs, metav1.ConditionTrue, string(gw.RouteReasonResolvedRefs), p.badReference))})
	}
	return out
}

func isSameParent(a, b gw.ParentReference) bool {
	return deref(a.Group, group) == deref(b.Group, group) && deref(a.Kind, kindGateway) == deref(b.Kind, kindGateway) &&
		deref(a.Namespace, "") == deref(b.Namespace, "") &&
		a.Name == b.Name && deref(a.SectionName, "") == deref(b.SectionName, "") && deref(a.Port, 0) == deref(b.Port, 0)
}

// PolicyStatus returns the status of a policy, with one entry for each Gateway whose routes lead to its backends.
func PolicyStatus(p *Policy, now time.Time) gw.PolicyStatus {
	out := gw.PolicyStatus{Ancestors: []gw.PolicyAncestorStatus{}}
	for _, a := range p.Status.Ancestors {
		if a.ControllerName != Controller {
			out.Ancestors = append(out.Ancestors, a)
		}
	}
	for _, g := range p.gateways {
		ref := gw.ParentReference{Group: new(gw.Group(group)), Kind: new(gw.Kind(kindGateway)), Namespace: new(gw.Namespace(g.Namespace)),
			Name: gw.ObjectName(g.Name)}
		var old []metav1.Condition
		for _, a := range p.Status.Ancestors {
			if a.ControllerName == Controller && isSameParent(a.AncestorRef, ref) {
				old = a.Conditions
			}
		}
		list := []metav1.Condition{condition(gw.PolicyConditionAccepted, metav1.ConditionTrue, string(gw.PolicyReasonAccepted),
			p.refused())}
		list = append(list, condition(gw.BackendTLSPolicyConditionResolvedRefs, metav1.ConditionTrue,
			string(gw.BackendTLSPolicyReasonResolvedRefs), p.badReference))
		if len(out.Ancestors) < maxAncestors {
			out.Ancestors = append(out.Ancestors,
				gw.PolicyAncestorStatus{AncestorRef: ref, ControllerName: Controller,
					Conditions: mergeConditions(old, p.Generation, now, list...)})
		}
	}
	return out
}
