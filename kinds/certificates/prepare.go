package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// prepareRequest forgets who the client says it is. The spec of a request never changes.
func prepareRequest(r, old *certificatesv1.CertificateSigningRequest) {
	if old != nil {
		r.Spec = old.Spec
		return
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
}

// signRequest records who asks.
func signRequest(u user.Info, r, old *certificatesv1.CertificateSigningRequest) {
	if old != nil || u == nil {
		return
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups = u.GetName(), u.GetUID(), u.GetGroups()
	for key, values := range u.GetExtra() {
		if r.Spec.Extra == nil {
			r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		r.Spec.Extra[key] = values
	}
}

// prepareApproval lets only conditions change.
func prepareApproval(r, old *certificatesv1.CertificateSigningRequest) {
	dateConditions(r, old)
	conditions := r.Status.Conditions
	r.Spec, r.Status = old.Spec, old.Status
	r.Status.Conditions = conditions
}

// prepareRequestStatus keeps what approval decided. If such conditions were added or removed they cannot be kept, and
// validation refuses the change.
func prepareRequestStatus(r, old *certificatesv1.CertificateSigningRequest) {
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
		was, is := indices(old, t), indices(r, t)
		if len(was) != len(is) {
			continue
		}
		for i := range is {
			r.Status.Conditions[is[i]] = old.Status.Conditions[was[i]]
		}
	}
	dateConditions(r, old)
}

func indices(r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) []int {
	var found []int
	for i, c := range r.Status.Conditions {
		if c.Type == t {
			found = append(found, i)
		}
	}
	return found
}

// dateConditions gives times to conditions that came without; one that says what it said before keeps its time.
func dateConditions(r, old *certificatesv1.CertificateSigningRequest) {
	now := metav1.Now()
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, o := range old.Status.Conditions {
			if o.Type == c.Type && o.Status == c.Status && !o.LastTransitionTime.IsZero() {
				c.LastTransitionTime = o.LastTransitionTime
				break
			}
		}
	}
}
