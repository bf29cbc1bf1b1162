package webhookclient

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	configv1 "k8s.io/kube-scheduler/config/v1"
)

// TestRedirectsAreNotFollowed checks that redirects of webhooks and scheduler extenders are not followed, and that the error, which
// is logged, contains neither the answer nor credentials.
func TestRedirectsAreNotFollowed(t *testing.T) {
	followed := 0
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed++ }))
	defer target.Close()
	var code int
	var to string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ask" {
			followed++
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(code)
		fmt.Fprint(w, "the answer repeats the question")
	}))
	defer s.Close()
	path := writeTempFile(t, "hook.yaml", kubeconfigHead+"clusters: [{name: c, cluster: {server: '"+strings.Replace(s.URL, "://", "://user:word@", 1)+
		"/ask?key=hidden'}}]\nusers: [{name: u, user: {token: hidden}}]\n")
	h, err := Open(path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, code = range []int{301, 302, 303, 307, 308} {
		for _, to = range []string{"/there", target.URL, "http://169.254.169.254/"} {
			_, webhookErr := h.Post(t.Context(), []byte("a token"))
			_, extenderErr := AskExtender(t.Context(), &configv1.Extender{}, s.URL+"/ask?key=hidden", []byte("a pod"))
			for who, err := range map[string]error{"the webhook": webhookErr, "the extender": extenderErr} {
				if err == nil || !strings.Contains(err.Error(), who+" at ") ||
					!strings.Contains(err.Error(), "answered "+strconv.Itoa(code)) ||
					!strings.Contains(err.Error(), "redirects are not followed") {
					t.Errorf("%d to %s: %v", code, to, err)
				}
				for _, bad := range []string{"repeats", "hidden", "word"} {
					if err != nil && strings.Contains(err.Error(), bad) {
						t.Errorf("the error quotes %s: %v", bad, err)
					}
				}
			}
		}
	}
	if followed != 0 {
		t.Errorf("%d redirects were followed", followed)
	}
	s.Close()
	if _, err := h.Post(t.Context(), nil); err == nil || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "word") {
		t.Errorf("the server is closed: %v", err)
	}
}
