package resourceclaim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// world has the claims and templates that a Pod can use.
type world struct {
	claim    func(name string) *resourcev1.ResourceClaim
	owned    []*resourcev1.ResourceClaim // by the Pod
	template func(name string) *resourcev1.ResourceClaimTemplate
}

// want is a claim that a Pod requests by template and that is not in its status: either it exists already, or it is to be
// created.
type want struct {
	request string
	have    string
	make    *resourcev1.ResourceClaim
}

// claimName returns the name of the claim for one of a Pod's requests. known is false if the status does not have it yet; an empty
// name that is known means that the Pod needs no claim.
func claimName(p *corev1.Pod, r *corev1.PodResourceClaim) (name string, known bool) {
	if r.ResourceClaimName != nil {
		return *r.ResourceClaimName, true
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name == r.Name {
			if s.ResourceClaimName == nil {
				return "", true
			}
			return *s.ResourceClaimName, true
		}
	}
	return "", false
}

// missingClaims returns the claims that a Pod requests by template and does not have. If the template of a request does not exist, it
// returns the request and an error.
func missingClaims(p *corev1.Pod, w world) (wants []want, failed string, err error) {
	for i := range p.Spec.ResourceClaims {
		r := &p.Spec.ResourceClaims[i]
		name, known := claimName(p, r)
		if known && name == "" || r.ResourceClaimTemplateName == nil {
			continue
		}
		if known {
			if c := w.claim(name); c != nil && metav1.IsControlledBy(c, p) {
				continue
			}
		}
		if at := slices.IndexFunc(w.owned, func(c *resourcev1.ResourceClaim) bool {
			request, generated := c.Annotations[resourcev1.PodResourceClaimAnnotation]
			return generated && request == r.Name
		}); at >= 0 { // created by an earlier reconcile that failed before it wrote the status
			wants = append(wants, want{request: r.Name, have: w.owned[at].Name})
			continue
		}
		t := w.template(*r.ResourceClaimTemplateName)
		if t == nil {
			return wants, r.Name, fmt.Errorf("resource claim template %q: resourceclaimtemplate.resource.k8s.io %q not found", *r.ResourceClaimTemplateName, *r.ResourceClaimTemplateName)
		}
		wants = append(wants, want{request: r.Name, make: newClaim(p, r.Name, t)})
	}
	return wants, "", nil
}

// newClaim returns the claim of a Pod from a template.
func newClaim(p *corev1.Pod, request string, t *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	annotations := maps.Clone(t.Spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcev1.PodResourceClaimAnnotation] = request
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, GenerateName: baseName(p.Name, request), Annotations: annotations, Labels: maps.Clone(t.Spec.Labels),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: new(true)}},
		},
		Spec: *t.Spec.Spec.DeepCopy(),
	}
}

// baseName returns the generateName of a claim. If it is too long, both parts are shortened proportionally.
func baseName(pod, request string) string {
	const maxLength = 57 // of 63, because a hyphen and five random letters are added
	name := pod + "-" + request + "-"
	if n := len(name); n > maxLength {
		name = pod[:len(pod)*maxLength/n] + "-" + request[:len(request)*maxLength/n]
	}
	return name
}

// withClaimStatuses returns the claim statuses of a Pod with more claims, given by request.
func withClaimStatuses(p *corev1.Pod, more map[string]string) []corev1.PodResourceClaimStatus {
	out := slices.DeleteFunc(slices.Clone(p.Status.ResourceClaimStatuses), func(s corev1.PodResourceClaimStatus) bool {
		_, again := more[s.Name]
		return again
	})
	for request, name := range more {
		out = append(out, corev1.PodResourceClaimStatus{Name: request, ResourceClaimName: new(name)})
	}
	slices.SortFunc(out, func(a, b corev1.PodResourceClaimStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// unreservedClaims returns the claims to reserve for a Pod that was bound to its node without the scheduler.
func unreservedClaims(p *corev1.Pod, w world) (out []*resourcev1.ResourceClaim, err error) {
	if p.Spec.NodeName == "" {
		return nil, nil
	}
	for i := range p.Spec.ResourceClaims {
		r := &p.Spec.ResourceClaims[i]
		name, known := claimName(p, r)
		if !known || name == "" {
			continue
		}
		c := w.claim(name)
		if c == nil {
			return out, nil // its creation wakes the key of the Pod
		}
		if r.ResourceClaimTemplateName != nil && !metav1.IsControlledBy(c, p) {
			return out, fmt.Errorf("ResourceClaim %s/%s was not created for pod %s/%s (pod is not owner)", c.Namespace, c.Name, p.Namespace,
				p.Name)
		}
		reserved := slices.ContainsFunc(c.Status.ReservedFor,
			func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == p.UID })
		if c.Status.Allocation != nil && !reserved && len(c.Status.ReservedFor) < resourcev1.ResourceClaimReservedForMaxSize {
			out = append(out, c)
		}
	}
	return out, nil
}
