package why

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/metadata"
)

// namespace explains a Namespace; the interesting ones are stuck in Terminating.
func (r *reader) namespace(ctx context.Context, t Target) (*Answer, error) {
	n, err := lookup.Load[corev1.Namespace](ctx, r.Reader, gr.Namespaces, "", t.Name)
	if err != nil {
		return nil, err
	}
	a := &Answer{Object: t.ref(), State: Working, Cause: "The namespace is active."}
	if n.DeletionTimestamp == nil {
		return a, nil
	}
	a.State = Stuck
	a.At(hop.Control).Because(a.Object, "metadata.deletionTimestamp", n.DeletionTimestamp.UTC().Format(time.RFC3339),
		n.DeletionTimestamp.Time)
	var says []string
	remaining := false
	for _, c := range n.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		says = append(says, answer.Sentence(c.Message))
		a.Because(a.Object, "status.conditions["+string(c.Type)+"]", c.Reason+": "+c.Message, c.LastTransitionTime.Time)
		switch c.Type {
		case corev1.NamespaceDeletionDiscoveryFailure:
			a.Do("kubectl get apiservices shows which aggregated API server does not answer; bring it back or delete its APIService")
		case corev1.NamespaceFinalizersRemaining:
			a.Do("the controllers that own these finalizers have to remove them; if one is gone for good, remove its finalizer by hand with kubectl edit")
		case corev1.NamespaceContentRemaining:
			remaining = true
			a.Do("kubectl get the resources that are named, and proa why about one of them")
		}
	}
	if len(says) > 0 {
		a.Cause = notDeletedYet + strings.Join(says, "; ") + "."
		if remaining && len(says) == 1 && r.Now.Sub(n.DeletionTimestamp.Time) < time.Minute {
			a.State = Waiting // Pods take their grace period
		}
		return a, nil
	}
	finalizers := slices.Clone(n.Finalizers)
	for _, f := range n.Spec.Finalizers {
		if f != corev1.FinalizerKubernetes {
			finalizers = append(finalizers, string(f))
		}
	}
	if len(finalizers) > 0 {
		a.Cause = "Nothing is said to be left in the namespace, but the finalizers " + strings.Join(finalizers, ", ") +
			" keep it; whoever added them has to remove them."
		return a.Because(a.Object, "metadata.finalizers", strings.Join(finalizers, ", "), time.Time{}), nil
	}
	a.State, a.Cause = Waiting, "The namespace is being emptied since "+r.ago(n.DeletionTimestamp.Time)+"."
	return a, nil
}

// notDeletedYet begins the cause of a namespace that is not empty.
const notDeletedYet = "The namespace cannot be deleted yet: "

// The bounds of what is read about the objects that keep a namespace: from how many resources, how many objects of each, and how many of
// these are named in the cause.
const (
	maxRemainingResources = 5
	maxRemainingObjects   = 3
	maxRemainingNamed     = 3
)

// remainingResource matches a resource, with a dot even if it has no group, in the condition of a namespace that names what remains.
var remainingResource = regexp.MustCompile(`([a-z0-9-]+)\.([a-z0-9.-]*) has \d+ resource instances`)

// addRemaining adds some of the objects that keep a namespace, with their finalizers, as evidence, and names the first of them in the
// cause.
func (r *reader) addRemaining(ctx context.Context, a *Answer) {
	n, err := lookup.Load[corev1.Namespace](ctx, r.Reader, gr.Namespaces, "", a.Object.Name)
	if err != nil {
		return
	}
	var some []string
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NamespaceContentRemaining || c.Status != corev1.ConditionTrue {
			continue
		}
		for _, found := range remainingResource.FindAllStringSubmatch(c.Message, maxRemainingResources) {
			some = append(some, r.remaining(ctx, n.Name, schema.GroupResource{Resource: found[1], Group: found[2]}, a)...)
		}
	}
	if rest, found := strings.CutPrefix(a.Cause, notDeletedYet); found && len(some) > 0 {
		named := strings.Join(some[:min(len(some), maxRemainingNamed)], ", ")
		a.Cause = answer.OneLine(notDeletedYet + "it still has " + named + "; " + rest)
	}
}

// remaining adds some of the objects of a resource that keep a namespace as evidence, and returns them as people write them.
func (r *reader) remaining(ctx context.Context, namespace string, on schema.GroupResource, a *Answer) (some []string) {
	items, _ := lookup.List[lookup.Conditioned](ctx, r.Reader, on, namespace, "")
	// Those that finalizers keep come first: what has none goes by itself.
	slices.SortStableFunc(items, func(x, y lookup.Conditioned) int { return min(len(y.Finalizers), 1) - min(len(x.Finalizers), 1) })
	for i := range items[:min(len(items), maxRemainingObjects)] {
		o := &items[i]
		ref := Ref{Kind: on.String(), Namespace: namespace, Name: o.Name}
		finalizers := strings.Join(o.Finalizers, ", ")
		a.Because(ref, "metadata.finalizers", cmp.Or(finalizers, "none"), deletedAt(&o.ObjectMeta))
		if finalizers != "" {
			finalizers = " (finalizers " + finalizers + ")"
		}
		some = append(some, ref.String()+finalizers)
	}
	return some
}

// deletedAt returns when somebody deleted an object that is still there; the zero time if nobody did.
func deletedAt(meta *metav1.ObjectMeta) time.Time {
	if meta.DeletionTimestamp == nil {
		return time.Time{}
	}
	return meta.DeletionTimestamp.Time
}

// approvalTime is how long whoever approves requests for certificates may take before a request counts as stuck.
const approvalTime = time.Minute

// signingRequest explains a CertificateSigningRequest.
func (r *reader) signingRequest(ctx context.Context, t Target) (*Answer, error) {
	c, err := lookup.Load[certificatesv1.CertificateSigningRequest](ctx, r.Reader, gr.CertificateSigningRequests, "", t.Name)
	if err != nil {
		return nil, err
	}
	a := (&Answer{Object: t.ref(), State: Stuck}).At(hop.Control)
	if c.DeletionTimestamp != nil {
		return metadata.Ending(a, &c.ObjectMeta, r.Now), nil
	}
	a.Because(a.Object, "spec.signerName", c.Spec.SignerName, time.Time{}).Because(a.Object, "spec.username", c.Spec.Username, time.Time{})
	approved := false
	for _, cond := range c.Status.Conditions {
		field := "status.conditions[" + string(cond.Type) + "]"
		switch cond.Type {
		case certificatesv1.CertificateDenied:
			a.Cause = "The request was denied (" + cond.Reason + "): " + answer.Sentence(cond.Message) + "."
			return a.Because(a.Object, field, cond.Reason+": "+cond.Message, cond.LastTransitionTime.Time), nil
		case certificatesv1.CertificateFailed:
			a.Cause = "The signer refused the request (" + cond.Reason + "): " + answer.Sentence(cond.Message) + "."
			return a.Because(a.Object, field, cond.Reason+": "+cond.Message, cond.LastTransitionTime.Time), nil
		case certificatesv1.CertificateApproved:
			approved = true
			a.Because(a.Object, field, cond.Reason+": "+cond.Message, cond.LastTransitionTime.Time)
		}
	}
	switch {
	case len(c.Status.Certificate) > 0:
		a.State, a.Cause, a.Hop, a.HopName = Working, "The certificate is issued.", 0, ""
	case !approved:
		a.Cause = "Nobody has approved the request yet; only requests of joining nodes are approved by the cluster itself."
		if r.Now.Sub(c.CreationTimestamp.Time) < approvalTime {
			a.State = Waiting
		}
		a.Because(a.Object, "metadata.creationTimestamp", c.CreationTimestamp.UTC().Format(time.RFC3339), c.CreationTimestamp.Time)
		a.Do("kubectl certificate approve %s, once you have checked who asks for what", c.Name)
	default:
		a.Cause = "The request is approved, but the signer " + c.Spec.SignerName +
			" has not issued a certificate; nobody may be signing for that name."
		a.Do("check that a controller for that signer runs")
	}
	return a, nil
}
