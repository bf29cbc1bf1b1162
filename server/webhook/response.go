package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

const (
	// maxAnswer is the size of the largest response of a webhook. A patch may be as large as the largest object that a
	// client may send.
	maxAnswer = 4 << 20
	// maxPatchOps is the length of the longest JSON patch, as for patches of clients.
	maxPatchOps = 10000
	// maxNotes, maxNote, maxWarnings and maxWarning limit what a webhook adds to the audit event and to the response of
	// the server.
	maxNotes    = 64
	maxNote     = 4 << 10
	maxWarnings = 64
	maxWarning  = 4 << 10
	// maxMessage is the length of the longest text of a denial.
	maxMessage = 64 << 10
	// maxCode is the largest status code of HTTP.
	maxCode = 999
)

// parseResponse decodes and checks the response to a review. Only a mutating webhook may return a patch.
func parseResponse(body []byte, q *reviewRequest, mutating bool) (*admissionv1.AdmissionResponse, error) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(body, &meta); err != nil {
		return nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	review := &admissionv1.AdmissionReview{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, review); err != nil {
		return nil, err
	}
	answer := review.Response
	if answer == nil {
		return nil, &invalidError{errors.New("webhook response was absent")}
	}
	if q.version == "v1beta1" { // upstream never checks these responses
		if answer.PatchType = nil; !mutating {
			answer.Patch = nil
		} else if len(answer.Patch) > 0 {
			answer.PatchType = new(admissionv1.PatchTypeJSONPatch)
		}
		return answer, nil
	}
	return answer, checkResponse(answer, q, review.GroupVersionKind().String(), mutating)
}

// invalidError is the error for a response that can be decoded but breaks the rules.
type invalidError struct{ error }

func (e *invalidError) Unwrap() error { return e.error }

// checkResponse returns what is wrong with a response.
func checkResponse(answer *admissionv1.AdmissionResponse, q *reviewRequest, gvk string, mutating bool) error {
	fault := func(format string, args ...any) error { return &invalidError{fmt.Errorf(format, args...)} }
	if answer.UID != q.uid {
		return fault("expected response.uid=%q, got %q", q.uid, truncate(string(answer.UID), 256))
	}
	if want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview").String(); gvk != want {
		return fault("expected webhook response of %v, got %v", want, truncate(gvk, 256))
	}
	switch patch, kind := answer.Patch, answer.PatchType; {
	case !mutating && len(patch) > 0:
		return fault("validating webhook may not return response.patch")
	case !mutating && kind != nil:
		return fault("validating webhook may not return response.patchType")
	case len(patch) > 0 && kind == nil:
		return fault("webhook returned response.patch but not response.patchType")
	case len(patch) == 0 && kind != nil:
		return fault("webhook returned response.patchType but not response.patch")
	case kind != nil && *kind == "":
		return fault("webhook returned invalid response.patchType of %q", *kind)
	}
	return nil
}

// readPatch decodes the patch of a response; nil for none.
func readPatch(answer *admissionv1.AdmissionResponse) (jsonpatch.Patch, error) {
	if len(answer.Patch) == 0 {
		return nil, nil
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		return nil, fmt.Errorf("received undecodable patch in webhook response: %w", err)
	}
	if len(patch) > maxPatchOps {
		return nil, fmt.Errorf("received a patch of %d operations in webhook response, %d are allowed", len(patch), maxPatchOps)
	}
	if kind := *answer.PatchType; len(patch) > 0 && kind != admissionv1.PatchTypeJSONPatch {
		return nil, fmt.Errorf("unsupported patch type %q", truncate(string(kind), 256))
	}
	return patch, nil
}

// denial returns the error for the client of a write that a webhook denies.
func denial(name string, result *metav1.Status) *apierrors.StatusError {
	if result == nil {
		result = &metav1.Status{}
	}
	out := *result
	if out.Code < http.StatusBadRequest {
		out.Code = http.StatusBadRequest
	}
	if out.Code > maxCode {
		out.Code = http.StatusInternalServerError
	}
	if out.Status == "" || out.Status == metav1.StatusSuccess {
		out.Status = metav1.StatusFailure
	}
	denied := fmt.Sprintf("admission webhook %q denied the request", name)
	switch {
	case out.Message != "":
		out.Message = denied + ": " + truncate(out.Message, maxMessage)
	case out.Reason != "":
		out.Message = denied + ": " + truncate(string(out.Reason), maxMessage)
	default:
		out.Message = denied + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: out}
}

// truncate shortens a text.
func truncate(text string, most int) string {
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
