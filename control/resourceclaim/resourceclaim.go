// Package resourceclaim makes the ResourceClaims that Pods ask for by template, notes them in the Pods' status, and lets go of
// claims whose Pods have ended: reservations are removed, what is no longer used is deallocated, and claims that were made for
// a Pod are deleted.
package resourceclaim

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Controllers returns the loop of Pods and the loop of claims.
func Controllers() []control.Controller {
	return []control.Controller{{
		Name: "resource-claim-controller", Component: "resource_claim", For: gr.Pods, When: asks, Workers: 10,
		Triggers: []control.Trigger{
			{On: gr.ResourceClaims, Keys: podsOfClaim},
			{On: gr.ResourceClaimTemplates, Keys: podsOfTemplate, When: func(old, _ kind.Object) bool { return old == nil }},
		},
		Writes: []control.Write{
			{On: gr.ResourceClaims, Do: "get create update/status update/binding"},
			{On: gr.Pods, Do: "update/status update/finalizers"},
		},
		Reconcile: lookPod,
	}, {
		Name: "resource-claim-controller", Component: "resource_claim", For: gr.ResourceClaims, Workers: 10,
		Triggers: []control.Trigger{{On: gr.Pods, Keys: claimsOfPod, When: ends}},
		Writes: []control.Write{
			{On: gr.ResourceClaims, Do: "update update/status update/binding delete"},
			{On: gr.Pods, Do: "get"},
		},
		Reconcile: lookClaim,
	}}
}

// asks leaves out Pods without claims, which are nearly all, and what changes nothing about theirs.
func asks(old, now kind.Object) bool {
	p, ok := now.(*corev1.Pod)
	if !ok || len(p.Spec.ResourceClaims) == 0 {
		return false
	}
	was, ok := old.(*corev1.Pod)
	return !ok || was.UID != p.UID || was.Spec.NodeName != p.Spec.NodeName || len(was.Status.ResourceClaimStatuses) != len(p.Status.ResourceClaimStatuses)
}

// ends leaves only the changes after which a Pod may need its claims no longer, or turns out to have some.
func ends(old, now kind.Object) bool {
	p, ok := now.(*corev1.Pod)
	if !ok {
		p, ok = old.(*corev1.Pod)
		return ok && uses(p)
	}
	return uses(p) && done(p)
}

func uses(p *corev1.Pod) bool {
	return len(p.Spec.ResourceClaims) > 0 || p.Status.ExtendedResourceClaimStatus != nil
}

func claimsOfPod(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for _, name := range claimNames(o.(*corev1.Pod)) {
			if !yield(control.Key{Namespace: o.GetNamespace(), Name: name}) {
				return
			}
		}
	}
}

// claimNames are the claims of a Pod that are known by name.
func claimNames(p *corev1.Pod) (names []string) {
	for i := range p.Spec.ResourceClaims {
		if name, known := nameOf(p, &p.Spec.ResourceClaims[i]); known && name != "" {
			names = append(names, name)
		}
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil && e.ResourceClaimName != "" {
		names = append(names, e.ResourceClaimName)
	}
	return names
}

// podsOfClaim are the Pods that use a claim, and the one it was made for.
func podsOfClaim(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for p := range c.View(gr.Pods).By(byResourceClaim(), o.GetNamespace()+"/"+o.GetName()) {
			if !yield(control.KeyOf(p)) {
				return
			}
		}
		if name, _ := madeFor(o.(*resourcev1.ResourceClaim)); name != "" {
			yield(control.Key{Namespace: o.GetNamespace(), Name: name})
		}
	}
}

func podsOfTemplate(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for p := range c.View(gr.Pods).By(byTemplate(), o.GetNamespace()+"/"+o.GetName()) {
			if !yield(control.KeyOf(p)) {
				return
			}
		}
	}
}

// byResourceClaim finds Pods by the claims they use.
func byResourceClaim() client.Index {
	return client.Index{Name: "resourceClaim", Of: func(o kind.Object) (out []string) {
		for _, name := range claimNames(o.(*corev1.Pod)) {
			out = append(out, o.GetNamespace()+"/"+name)
		}
		return out
	}}
}

// byTemplate finds Pods by the templates they name.
func byTemplate() client.Index {
	return client.Index{Name: "resourceClaimTemplate", Of: func(o kind.Object) (out []string) {
		for _, r := range o.(*corev1.Pod).Spec.ResourceClaims {
			if r.ResourceClaimTemplateName != nil {
				out = append(out, o.GetNamespace()+"/"+*r.ResourceClaimTemplateName)
			}
		}
		return out
	}}
}
