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

// world is what there is for a Pod to use.
type world struct {
	claim    func(name string) *resourcev1.ResourceClaim
	owned    []*resourcev1.ResourceClaim // by the Pod
	template func(name string) *resourcev1.ResourceClaimTemplate
}

// want is a claim that a Pod asks for by template and does not have: one that is there without being noted, or one to make.
type want struct {
	request string
	have    string
	make    *resourcev1.ResourceClaim
}

// nameOf is the name of the claim that a Pod uses for one of its requests. known is false while nobody has said; an empty name
// that is known means that the Pod needs none.
func nameOf(p *corev1.Pod, r *corev1.PodResourceClaim) (name string, known bool) {
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

// missing are the claims that a Pod asks for by template and does not have. The error is about a request that nothing can be
// done for now.
func missing(p *corev1.Pod, w world) (wants []want, failed string, err error) {
	for i := range p.Spec.ResourceClaims {
		r := &p.Spec.ResourceClaims[i]
		name, known := nameOf(p, r)
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
		}); at >= 0 { // made by a look that came no further
			wants = append(wants, want{request: r.Name, have: w.owned[at].Name})
			continue
		}
		t := w.template(*r.ResourceClaimTemplateName)
		if t == nil {
			return wants, r.Name, fmt.Errorf("resource claim template %q: resourceclaimtemplate.resource.k8s.io %q not found", *r.ResourceClaimTemplateName, *r.ResourceClaimTemplateName)
		}
		wants = append(wants, want{request: r.Name, make: generate(p, r.Name, t)})
	}
	return wants, "", nil
}

// generate makes the claim of a Pod from a template.
func generate(p *corev1.Pod, request string, t *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
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

// baseName is how the name of a claim begins. Of names that are too long, both parts keep their share.
func baseName(pod, request string) string {
	const most = 57 // of 63, with a hyphen and five random letters to come
	name := pod + "-" + request + "-"
	if n := len(name); n > most {
		name = pod[:len(pod)*most/n] + "-" + request[:len(request)*most/n]
	}
	return name
}

// noted are the claims of a Pod's status with some more, by request.
func noted(p *corev1.Pod, more map[string]string) []corev1.PodResourceClaimStatus {
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

// unreserved are the claims to be reserved for a Pod that came to its node without the scheduler's doing.
func unreserved(p *corev1.Pod, w world) (out []*resourcev1.ResourceClaim, err error) {
	if p.Spec.NodeName == "" {
		return nil, nil
	}
	for i := range p.Spec.ResourceClaims {
		r := &p.Spec.ResourceClaims[i]
		name, known := nameOf(p, r)
		if !known || name == "" {
			continue
		}
		c := w.claim(name)
		if c == nil {
			return out, nil // when it is there, the Pod is looked at again
		}
		if r.ResourceClaimTemplateName != nil && !metav1.IsControlledBy(c, p) {
			return out, fmt.Errorf("ResourceClaim %s/%s was not created for pod %s/%s (pod is not owner)", c.Namespace, c.Name, p.Namespace, p.Name)
		}
		reserved := slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == p.UID })
		if c.Status.Allocation != nil && !reserved && len(c.Status.ReservedFor) < resourcev1.ResourceClaimReservedForMaxSize {
			out = append(out, c)
		}
	}
	return out, nil
}
