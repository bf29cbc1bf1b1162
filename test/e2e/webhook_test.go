package e2e

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhooks starts a server of admission webhooks, which runs until the test ends, and returns the variables by which scripts register
// them: its address and its certificate authority. The webhook at /deny denies every request with a reason, the one at /silent never
// answers.
func webhooks(t *testing.T) map[string]string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/deny", deny)
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is it noticed that the client has gone
		<-r.Context().Done()
	})
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return map[string]string{"WEBHOOK": server.URL, "WEBHOOK_CA": base64.StdEncoding.EncodeToString(authority)}
}

// deny answers an AdmissionReview with a denial.
func deny(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "this is no AdmissionReview", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "the team label is missing"}}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}
