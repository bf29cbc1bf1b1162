package why

import (
	"context"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
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
		a.Cause = "The namespace cannot be deleted yet: " + strings.Join(says, "; ") + "."
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

// signingRequest explains a CertificateSigningRequest.
func (r *reader) signingRequest(ctx context.Context, t Target) (*Answer, error) {
	c, err := lookup.Load[certificatesv1.CertificateSigningRequest](ctx, r.Reader, gr.CertificateSigningRequests, "", t.Name)
	if err != nil {
		return nil, err
	}
	a := (&Answer{Object: t.ref(), State: Stuck}).At(hop.Control)
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
		a.State, a.Cause = Waiting, "Nobody has approved the request yet; only requests of joining nodes are approved by the cluster itself."
		a.Do("kubectl certificate approve %s, once you have checked who asks for what", c.Name)
	default:
		a.Cause = "The request is approved, but the signer " + c.Spec.SignerName +
			" has not issued a certificate; nobody may be signing for that name."
		a.Do("check that a controller for that signer runs")
	}
	return a, nil
}
