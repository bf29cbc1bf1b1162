package webhook

import (
	"encoding/json"
	"errors"

	"github.com/google/uuid"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/server/admissionmatch"
	"proa.dev/server/objectversion"
)

// reviewRequest is the AdmissionReview that is sent to a webhook, with what its response is checked against.
type reviewRequest struct {
	uid  types.UID
	body []byte
	// version is the version of the review: v1, or v1beta1, which has the same fields and looser rules.
	version string
}

// newReview returns the review of a write for a webhook.
func (r *request) newReview(h *hook, v *versioned) (*reviewRequest, error) {
	for _, version := range h.versions {
		if version != "v1" && version != "v1beta1" {
			continue
		}
		q := &reviewRequest{uid: types.UID(uuid.NewString()), version: version}
		review := admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.GroupName + "/" + version, Kind: "AdmissionReview"},
			Request:  r.review(q.uid, v),
		}
		var err error
		q.body, err = json.Marshal(&review)
		return q, err
	}
	return nil, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
}

func (r *request) review(uid types.UID, v *versioned) *admissionv1.AdmissionRequest {
	extra := map[string]authenticationv1.ExtraValue{}
	for key, values := range r.User.GetExtra() {
		extra[key] = values
	}
	requested := admissionmatch.Kind(r.Served, r.Sub)
	out := &admissionv1.AdmissionRequest{
		UID:  uid,
		Kind: kindOf(v.kind), Resource: metav1.GroupVersionResource(objectversion.ResourceOf(v.def)), SubResource: r.Sub,
		RequestKind: new(kindOf(requested)), RequestResource: new(metav1.GroupVersionResource(objectversion.ResourceOf(r.Served))),
		RequestSubResource: r.Sub,
		Name:               r.ObjectName(), Namespace: admissionmatch.Namespace(r.Admission),
		Operation: admissionv1.Operation(admissionmatch.Operation(r.Admission)),
		UserInfo:  authenticationv1.UserInfo{Username: r.User.GetName(), UID: r.User.GetUID(), Groups: r.User.GetGroups(), Extra: extra},
		DryRun:    &r.DryRun,
		Object:    runtime.RawExtension{Raw: v.objectJSON}, OldObject: runtime.RawExtension{Raw: v.oldJSON},
		Options: runtime.RawExtension{Object: r.Options},
	}
	return out
}

func kindOf(k schema.GroupVersionKind) metav1.GroupVersionKind { return metav1.GroupVersionKind(k) }
