// Package resourceclaim creates the ResourceClaims that Pods request by template, writes them into the Pods' status, and
// releases claims whose Pods have ended: it removes their reservations, deallocates claims that are no longer used, and deletes
// those that were generated for a Pod.
package resourceclaim

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Controllers returns the controller of Pods and the controller of claims.
func Controllers() []control.Controller {
	return []control.Controller{{
		Name: "resource-claim-controller", Component: "resource_claim", For: gr.Pods, When: isRelevantPodChange, Workers: 10,
		Triggers: []control.Trigger{
			{On: gr.ResourceClaims, Keys: podsOfClaim},
			{On: gr.ResourceClaimTemplates, Keys: podsOfTemplate, When: func(old, _ kind.Object) bool { return old == nil }},
		},
		Writes: []control.Write{
			{On: gr.ResourceClaims, Do: "get create update/status update/binding"},
			{On: gr.Pods, Do: "update/status update/finalizers"},
		},
		Reconcile: reconcilePod,
	}, {
		Name: "resource-claim-controller", Component: "resource_claim", For: gr.ResourceClaims, Workers: 10,
		Triggers: []control.Trigger{{On: gr.Pods, Keys: claimsOfPod, When: mayReleaseClaims}},
		Writes: []control.Write{
			{On: gr.ResourceClaims, Do: "update update/status update/binding delete"},
			{On: gr.Pods, Do: "get"},
		},
		Reconcile: reconcileClaim,
	}}
}

// isRelevantPodChange ignores Pods without claims, which are nearly all, and changes that do not concern claims.
func isRelevantPodChange(old, now kind.Object) bool {
	p, ok := now.(*corev1.Pod)
	if !ok || len(p.Spec.ResourceClaims) == 0 {
		return false
	}
	was, ok := old.(*corev1.Pod)
	return !ok || was.UID != p.UID || was.Spec.NodeName != p.Spec.NodeName ||
		len(was.Status.ResourceClaimStatuses) != len(p.Status.ResourceClaimStatuses)
}

// mayReleaseClaims accepts changes after which a Pod may no longer need its claims.
func mayReleaseClaims(old, now kind.Object) bool {
	p, ok := now.(*corev1.Pod)
	if !ok {
		p, ok = old.(*corev1.Pod)
		return ok && usesClaims(p)
	}
	return usesClaims(p) && hasEnded(p)
}

func usesClaims(p *corev1.Pod) bool {
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

// claimNames returns the names of a Pod's claims, as far as they are known.
func claimNames(p *corev1.Pod) (names []string) {
	for i := range p.Spec.ResourceClaims {
		if name, known := claimName(p, &p.Spec.ResourceClaims[i]); known && name != "" {
			names = append(names, name)
		}
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil && e.ResourceClaimName != "" {
		names = append(names, e.ResourceClaimName)
	}
	return names
}

// podsOfClaim yields the Pods that use a claim, and the one it was generated for.
func podsOfClaim(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for p := range c.View(gr.Pods).By(byResourceClaim(), o.GetNamespace()+"/"+o.GetName()) {
			if !yield(control.KeyOf(p)) {
				return
			}
		}
		if name, _ := generatedFor(o.(*resourcev1.ResourceClaim)); name != "" {
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

// byResourceClaim indexes Pods by the claims they use.
func byResourceClaim() client.Index {
	return client.Index{Name: "resourceClaim", Values: func(o kind.Object) (out []string) {
		for _, name := range claimNames(o.(*corev1.Pod)) {
			out = append(out, o.GetNamespace()+"/"+name)
		}
		return out
	}}
}

// byTemplate indexes Pods by the templates they name.
func byTemplate() client.Index {
	return client.Index{Name: "resourceClaimTemplate", Values: func(o kind.Object) (out []string) {
		for _, r := range o.(*corev1.Pod).Spec.ResourceClaims {
			if r.ResourceClaimTemplateName != nil {
				out = append(out, o.GetNamespace()+"/"+*r.ResourceClaimTemplateName)
			}
		}
		return out
	}}
}
