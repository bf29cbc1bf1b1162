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
	// maxAnswer bounds the answer of a webhook. A patch may be as large as the largest object that a client may send.
	maxAnswer = 4 << 20
	// maxPatchOps bounds a JSON patch, as it does those of clients.
	maxPatchOps = 10000
	// maxNotes, maxNote and maxWarnings bound what an answer adds to the audit log and to the answer of the server.
	maxNotes    = 64
	maxNote     = 4 << 10
	maxWarnings = 64
	maxWarning  = 4 << 10
	// maxMessage bounds the text of a refusal.
	maxMessage = 64 << 10
	// maxCode is the largest code that HTTP can carry.
	maxCode = 999
)

// decide reads and checks the answer to a question. Only the answer of a mutating webhook may have a patch.
func decide(body []byte, q *question, mutating bool) (*admissionv1.AdmissionResponse, error) {
	var said metav1.TypeMeta
	if err := json.Unmarshal(body, &said); err != nil {
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
	if q.version == "v1beta1" { // whose answers were never checked
		if answer.PatchType = nil; !mutating {
			answer.Patch = nil
		} else if len(answer.Patch) > 0 {
			answer.PatchType = new(admissionv1.PatchTypeJSONPatch)
		}
		return answer, nil
	}
	return answer, invalid(answer, q, review.GroupVersionKind().String(), mutating)
}

// invalidError is the fault of an answer that can be read.
type invalidError struct{ error }

func (e *invalidError) Unwrap() error { return e.error }

// invalid says what is wrong with an answer.
func invalid(answer *admissionv1.AdmissionResponse, q *question, gvk string, mutating bool) error {
	fault := func(format string, args ...any) error { return &invalidError{fmt.Errorf(format, args...)} }
	if answer.UID != q.uid {
		return fault("expected response.uid=%q, got %q", q.uid, cut(string(answer.UID), 256))
	}
	if want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview").String(); gvk != want {
		return fault("expected webhook response of %v, got %v", want, cut(gvk, 256))
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

// readPatch reads the patch of an answer; nil for none.
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
		return nil, fmt.Errorf("unsupported patch type %q", cut(string(kind), 256))
	}
	return patch, nil
}

// refusal is the answer to the client of a write that a webhook does not allow.
func refusal(name string, result *metav1.Status) *apierrors.StatusError {
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
		out.Message = denied + ": " + cut(out.Message, maxMessage)
	case out.Reason != "":
		out.Message = denied + ": " + cut(string(out.Reason), maxMessage)
	default:
		out.Message = denied + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: out}
}

// cut shortens a text.
func cut(text string, most int) string {
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
