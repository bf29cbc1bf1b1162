package webhook

import "testing"

// FuzzResponse checks that no response of a webhook crashes the server, or changes more than the object.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `[]`, `null`, `{"response":null}`, `{"response":{"uid":"u","allowed":true}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscyIsInZhbHVlIjp7ImEiOiJiIn19XQ=="}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":false,"status":{"code":-1,"message":"m"}}}`,
	} {
		f.Add([]byte(seed), true, false)
		f.Add([]byte(seed), false, true)
	}
	made := newRig(f)
	f.Fuzz(func(t *testing.T, body []byte, mutating, old bool) {
		q := &reviewRequest{uid: "u", version: "v1"}
		if old {
			q.version = "v1beta1"
		}
		answer, err := parseResponse(body, q, mutating)
		if err != nil {
			return
		}
		if answer == nil || !old && answer.UID != "u" || !mutating && (len(answer.Patch) > 0 || answer.PatchType != nil) {
			t.Fatalf("%+v", answer)
		}
		if st := denial("x", answer.Result).ErrStatus; st.Code < 400 || st.Code > 999 || st.Status == "Success" || st.Message == "" {
			t.Fatalf("%+v", st)
		}
		patch, err := readPatch(answer)
		if err != nil || len(patch) == 0 {
			return
		}
		made.t = t
		r := newRequest(made.write("create", "v1", "pods", pod("name"), nil), nil)
		v, err := r.inVersion(t.Context(), r.Served)
		if err != nil {
			t.Fatal(err)
		}
		if next, err := r.patched(v, patch); err == nil && next.GetObjectKind().GroupVersionKind() != v.kind {
			t.Fatalf("%+v", next)
		}
	})
}
