package gateway

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// condition makes a condition: v says why it is not as it should be. good is the status of a condition about which all is well.
func condition[T ~string](kind T, good metav1.ConditionStatus, reason string, v verdict) metav1.Condition {
	c := metav1.Condition{Type: string(kind), Status: good, Reason: reason}
	if !v.isGood() {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v.reason, v.message
		if good == metav1.ConditionFalse {
			c.Status = metav1.ConditionTrue
		}
	}
	return c
}

// merged puts conditions in the place of old ones. The time of a change stays where nothing has changed, and so do conditions of others.
func merged(old []metav1.Condition, generation int64, now time.Time, list ...metav1.Condition) []metav1.Condition {
	out := slices.Clone(old)
	for _, c := range list {
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.NewTime(now)
		meta.SetStatusCondition(&out, c)
	}
	return out
}

// classStatus is the status of a class of ours.
func classStatus(c *gw.GatewayClass, now time.Time) gw.GatewayClassStatus {
	out := *c.Status.DeepCopy()
	var v verdict
	if p := c.Spec.ParametersRef; p != nil {
		v = verdict{string(gw.GatewayClassReasonInvalidParameters), "there are no parameters of the kind " + string(p.Kind) + " here"}
	}
	out.Conditions = merged(c.Status.Conditions, c.Generation, now,
		condition(gw.GatewayClassConditionStatusAccepted, metav1.ConditionTrue, string(gw.GatewayClassReasonAccepted), v),
		condition(gw.GatewayClassConditionStatusSupportedVersion, metav1.ConditionTrue, string(gw.GatewayClassReasonSupportedVersion), verdict{}))
	out.SupportedFeatures = nil
	for _, name := range Features() {
		out.SupportedFeatures = append(out.SupportedFeatures, gw.SupportedFeature{Name: gw.FeatureName(name)})
	}
	return out
}

// place is where a Gateway is reached.
type place struct {
	addresses []string
	// trouble says why it is not reached.
	trouble verdict
}

// gatewayStatus is the status of a Gateway.
func gatewayStatus(g *gateway, at place, now time.Time) gw.GatewayStatus {
	out := gw.GatewayStatus{AttachedListenerSets: g.Status.AttachedListenerSets}
	for _, a := range at.addresses {
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
	if g.refused.isGood() && bad > 0 {
		accepted.Reason, accepted.Message = string(gw.GatewayReasonListenersNotValid), "some listeners are not valid; their conditions say why"
		if !slices.ContainsFunc(g.listeners, func(l *listener) bool { return l.refused.isGood() && l.conflicted.isGood() }) {
			accepted.Status = metav1.ConditionFalse
		}
	}
	programmed := at.trouble
	serving := slices.ContainsFunc(g.listeners, func(l *listener) bool { return l.serves() })
	switch {
	case !g.refused.isGood():
		programmed = verdict{string(gw.GatewayReasonInvalid), g.refused.message}
	case !serving:
		programmed = verdict{string(gw.GatewayReasonInvalid), "no listener can be served"}
	}
	list := []metav1.Condition{accepted, condition(gw.GatewayConditionProgrammed, metav1.ConditionTrue, string(gw.GatewayReasonProgrammed), programmed)}
	resolved := g.references
	if resolved.isGood() && slices.ContainsFunc(g.listeners, func(l *listener) bool { return !l.references.isGood() }) {
		resolved = verdict{string(gw.GatewayReasonListenersNotResolved), "references of some listeners do not lead to what they should; their conditions say why"}
	}
	list = append(list, condition(gw.GatewayConditionResolvedRefs, metav1.ConditionTrue, string(gw.GatewayReasonResolvedRefs), resolved))
	old := g.Status.Conditions
	if g.insecure {
		list = append(list, metav1.Condition{
			Type: string(gw.GatewayConditionInsecureFrontendValidationMode), Status: metav1.ConditionTrue, Reason: string(gw.GatewayReasonConfigurationChanged),
			Message: "clients are let in whose certificate nobody vouches for",
		})
	} else {
		old = without(old, string(gw.GatewayConditionInsecureFrontendValidationMode))
	}
	if g.Spec.AllowedListeners != nil || g.sets > 0 {
		out.AttachedListenerSets = new(g.sets)
	}
	out.Conditions = merged(old, g.Generation, now, list...)
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

// listenerStatus is the status of a listener.
func listenerStatus(l *listener, old []metav1.Condition, generation int64, now time.Time) gw.ListenerStatus {
	accepted, programmed := l.conflicted, verdict{}
	if accepted.isGood() {
		accepted = l.refused
	}
	if !l.serves() || !l.references.isGood() {
		programmed = verdict{cmp.Or(l.conflicted.reason, string(gw.ListenerReasonInvalid)), cmp.Or(l.refused.message, l.conflicted.message, l.references.message, l.gateway.refused.message)}
	}
	return gw.ListenerStatus{
		Name: l.Name, SupportedKinds: l.kinds, AttachedRoutes: l.attached,
		Conditions: merged(old, generation, now,
			condition(gw.ListenerConditionAccepted, metav1.ConditionTrue, string(gw.ListenerReasonAccepted), accepted),
			condition(gw.ListenerConditionProgrammed, metav1.ConditionTrue, string(gw.ListenerReasonProgrammed), programmed),
			condition(gw.ListenerConditionResolvedRefs, metav1.ConditionTrue, string(gw.ListenerReasonResolvedRefs), l.references),
			condition(gw.ListenerConditionConflicted, metav1.ConditionFalse, string(gw.ListenerReasonNoConflicts), l.conflicted)),
	}
}

// setStatus is the status of a ListenerSet.
func setStatus(s *listenerSet, now time.Time) gw.ListenerSetStatus {
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
		out.Listeners = append(out.Listeners, gw.ListenerEntryStatus{Name: one.Name, SupportedKinds: one.SupportedKinds, AttachedRoutes: one.AttachedRoutes, Conditions: one.Conditions})
		if l.isValid() {
			good++
		}
	}
	if accepted.isGood() && !s.gateway.refused.isGood() {
		accepted = verdict{string(gw.ListenerSetReasonParentNotAccepted), s.gateway.refused.message}
		programmed = accepted
	}
	if accepted.isGood() && good == 0 {
		accepted = verdict{string(gw.ListenerSetReasonListenersNotValid), "no listener is valid; their conditions say why"}
		programmed = accepted
	}
	first := condition(gw.ListenerSetConditionAccepted, metav1.ConditionTrue, string(gw.ListenerSetReasonAccepted), accepted)
	if accepted.isGood() && good < len(s.listeners) {
		first.Reason, first.Message = string(gw.ListenerSetReasonListenersNotValid), "some listeners are not valid; their conditions say why"
	}
	out.Conditions = merged(s.Status.Conditions, s.Generation, now, first,
		condition(gw.ListenerSetConditionProgrammed, metav1.ConditionTrue, string(gw.ListenerSetReasonProgrammed), programmed))
	return out
}

// routeStatus is the status of a route. What other controllers say about their parents stays.
func routeStatus(r *attachedRoute, now time.Time) gw.RouteStatus {
	out := gw.RouteStatus{Parents: []gw.RouteParentStatus{}}
	for _, p := range r.status.Parents {
		if p.ControllerName != Controller {
			out.Parents = append(out.Parents, p)
		}
	}
	for _, p := range r.parents {
		var old []metav1.Condition
		for _, o := range r.status.Parents {
			if o.ControllerName == Controller && sameParent(o.ParentRef, p.ref) {
				old = o.Conditions
			}
		}
		out.Parents = append(out.Parents, gw.RouteParentStatus{ParentRef: p.ref, ControllerName: Controller, Conditions: merged(old, r.GetGeneration(), now,
			condition(gw.RouteConditionAccepted, metav1.ConditionTrue, string(gw.RouteReasonAccepted), p.accepted),
			condition(gw.RouteConditionResolvedRefs, metav1.ConditionTrue, string(gw.RouteReasonResolvedRefs), p.references))})
	}
	return out
}

func sameParent(a, b gw.ParentReference) bool {
	return deref(a.Group, group) == deref(b.Group, group) && deref(a.Kind, kindGateway) == deref(b.Kind, kindGateway) && deref(a.Namespace, "") == deref(b.Namespace, "") &&
		a.Name == b.Name && deref(a.SectionName, "") == deref(b.SectionName, "") && deref(a.Port, 0) == deref(b.Port, 0)
}

// policyStatus is the status of a policy, by the Gateways whose routes lead to its backends.
func policyStatus(p *policy, now time.Time) gw.PolicyStatus {
	out := gw.PolicyStatus{Ancestors: []gw.PolicyAncestorStatus{}}
	for _, a := range p.Status.Ancestors {
		if a.ControllerName != Controller {
			out.Ancestors = append(out.Ancestors, a)
		}
	}
	for _, g := range p.gateways {
		ref := gw.ParentReference{Group: new(gw.Group(group)), Kind: new(gw.Kind(kindGateway)), Namespace: new(gw.Namespace(g.Namespace)), Name: gw.ObjectName(g.Name)}
		var old []metav1.Condition
		for _, a := range p.Status.Ancestors {
			if a.ControllerName == Controller && sameParent(a.AncestorRef, ref) {
				old = a.Conditions
			}
		}
		list := []metav1.Condition{condition(gw.PolicyConditionAccepted, metav1.ConditionTrue, string(gw.PolicyReasonAccepted), p.refused())}
		list = append(list, condition(gw.BackendTLSPolicyConditionResolvedRefs, metav1.ConditionTrue, string(gw.BackendTLSPolicyReasonResolvedRefs), p.references))
		if len(out.Ancestors) < maxAncestors {
			out.Ancestors = append(out.Ancestors, gw.PolicyAncestorStatus{AncestorRef: ref, ControllerName: Controller, Conditions: merged(old, p.Generation, now, list...)})
		}
	}
	return out
}
