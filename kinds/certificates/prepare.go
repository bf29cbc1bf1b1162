package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// prepareRequest clears the user that the client sent, and reverts changes of the spec.
func prepareRequest(r, old *certificatesv1.CertificateSigningRequest) {
	if old != nil {
		r.Spec = old.Spec
		return
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
}

// signRequest records the user of the request.
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

// prepareApproval reverts all changes but those of conditions.
func prepareApproval(r, old *certificatesv1.CertificateSigningRequest) {
	setConditionTimes(r, old)
	conditions := r.Status.Conditions
	r.Spec, r.Status = old.Spec, old.Status
	r.Status.Conditions = conditions
}

// prepareRequestStatus keeps the conditions that approval has set. If such conditions were added or removed,
// validation refuses the change.
func prepareRequestStatus(r, old *certificatesv1.CertificateSigningRequest) {
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
		was, is := conditionIndexes(old, t), conditionIndexes(r, t)
		if len(was) != len(is) {
			continue
		}
		for i := range is {
			r.Status.Conditions[is[i]] = old.Status.Conditions[was[i]]
		}
	}
	setConditionTimes(r, old)
}

func conditionIndexes(r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) []int {
	var found []int
	for i, c := range r.Status.Conditions {
		if c.Type == t {
			found = append(found, i)
		}
	}
	return found
}

// setConditionTimes sets the times of conditions that have none; a condition with the same status keeps its transition
// time.
func setConditionTimes(r, old *certificatesv1.CertificateSigningRequest) {
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
