package webhookclient

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

func TestAskExtender(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/filter":
			_, _ = w.Write(append([]byte("received "), body...))
		case "/slow":
			<-r.Context().Done()
		default:
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	trusting := &configv1.Extender{URLPrefix: s.URL, TLSConfig: &configv1.ExtenderTLSConfig{CAData: ca},
		HTTPTimeout: metav1.Duration{Duration: time.Minute}}
	impatient := *trusting
	impatient.HTTPTimeout.Duration = 200 * time.Millisecond
	if got, err := AskExtender(t.Context(), trusting, s.URL+"/filter", []byte("a pod")); err != nil || string(got) != "received a pod" {
		t.Errorf("answer %q, %v", got, err)
	}
	for what, c := range map[string]struct {
		extender *configv1.Extender
		path     string
		want     string
	}{
		"a failure": {trusting, "/bind", "500"},
		"silence":   {&impatient, "/slow", "deadline exceeded"},
		"no CA":     {&configv1.Extender{URLPrefix: s.URL}, "/filter", "certificate"},
		"a broken CA": {&configv1.Extender{TLSConfig: &configv1.ExtenderTLSConfig{CAData: []byte("x")}}, "/filter",
			"holds no certificate"},
		"a missing CA": {&configv1.Extender{TLSConfig: &configv1.ExtenderTLSConfig{CAFile: "/absent"}}, "/filter", "no such file"},
		"a cert, no key": {&configv1.Extender{TLSConfig: &configv1.ExtenderTLSConfig{CertData: ca}}, "/filter",
			"the certificate for the extender"},
		"no check at all": {&configv1.Extender{TLSConfig: &configv1.ExtenderTLSConfig{Insecure: true}}, "/filter", ""},
	} {
		_, err := AskExtender(t.Context(), c.extender, s.URL+c.path, nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}
