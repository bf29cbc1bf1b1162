package httpapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/audit"
)

// fixedUser authenticates every request as the same user.
type fixedUser struct{ who user.Info }

func (k fixedUser) Request(*http.Request) (user.Info, error) { return k.who, nil }

// TestStrictAudit checks that with a strict audit log, a request that cannot be audited is refused and changes nothing.
func TestStrictAudit(t *testing.T) {
	r := newRig(t)
	auditFails := true
	log, err := audit.Open(audit.Config{Hook: &audit.Hook{Strict: true, Retry: 1, Post: func([]byte) error {
		if auditFails {
			return errors.New("the audit log cannot be written")
		}
		return nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	r.Handler.Authn, r.Audit = fixedUser{who: r.who}, log
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/namespaces/ns/configmaps", nil))
		return w
	}
	want := "Internal Server Error: \"/api/v1/namespaces/ns/configmaps\": failed to store audit event\n"
	if w := get(); w.Code != http.StatusInternalServerError || w.Body.String() != want {
		t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
	}
	if _, err := r.Client(r.who).Create(t.Context(), configMapsResource(), configMap("untold")); !apierrors.IsInternalError(err) {
		t.Errorf("a write that could not be audited: %v", err)
	}
	auditFails = false
	if w := get(); w.Code != http.StatusOK {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if _, err := r.Client(r.who).Get(t.Context(), configMapsResource(), "ns", "untold", ""); !apierrors.IsNotFound(err) {
		t.Errorf("it was written nevertheless: %v", err)
	}
}
