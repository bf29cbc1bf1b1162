package audit

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSecretBodiesAreNotRecorded checks that no policy gets the body of a Secret or a token, nor an error that
// quotes it.
func TestSecretBodiesAreNotRecorded(t *testing.T) {
	for _, confidential := range []bool{false, true} {
		var out bytes.Buffer
		l, err := Open(Config{Path: "-", Stdout: &out, Log: discardLogger(),
			Policy: []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n")})
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range []metav1.StatusReason{metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest,
			metav1.StatusReasonInternalError, "", metav1.StatusReasonNotFound} {
			tr := l.Begin(Request{ID: "1", Start: time.Now(), Verb: "create", IsResource: true, Resource: "secrets",
				Confidential: confidential})
			tr.SetRequestBody([]byte(`{"data":"hidden"}`))
			tr.SetResponseBody([]byte(`{"data":"hidden"}`))
			message := `data: Invalid value: "hidden"`
			if reason == metav1.StatusReasonNotFound {
				message = `secrets "name" not found`
			}
			tr.SetStatus(&metav1.Status{Reason: reason, Message: message,
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: message}}}})
			tr.ResponseComplete(http.StatusBadRequest)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "hidden"); got == confidential {
			t.Errorf("confidential %v: %s", confidential, out.String())
		}
		if !strings.Contains(out.String(), `secrets \"name\" not found`) {
			t.Errorf("an error about a name is missing: %s", out.String())
		}
	}
}

func TestWithoutTokens(t *testing.T) {
	for in, want := range map[string]string{
		"/a/b": "/a/b", "/a?limit=1&watch=true": "/a?limit=1&watch=true", "/a?x=%20;y": "/a?x=%20;y",
		"/a?limit=1&access_token=x&b=c": "/a?limit=1&access_token=REDACTED&b=c", "/a?TOKEN=x": "/a?token=REDACTED",
		"/a?acc%65ss_token=x": "/a?access_token=REDACTED",
		"/a?token":            "/a?token=REDACTED", "/a?password=x;token=y": "/a?password=REDACTED&token=REDACTED",
		"/a?client_secret=x":          "/a?client_secret=REDACTED",
		"/exec?command=ls&command=-l": "/exec?command=ls&command=-l", "/a?continue=abc": "/a?continue=abc",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := withoutTokens(u); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
