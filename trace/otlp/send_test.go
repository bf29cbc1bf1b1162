package otlp

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSend(t *testing.T) {
	var path, media string
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, media = r.URL.Path, r.Header.Get("Content-Type")
		body, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, `{"partialSuccess":{}}`)
	}))
	defer srv.Close()
	for _, addr := range []string{srv.URL, srv.URL + "/", strings.TrimPrefix(srv.URL, "http://"), srv.URL + "/v1/traces"} {
		path = ""
		if err := Send(t.Context(), addr, sample()); err != nil {
			t.Fatalf("%s: %v", addr, err)
		}
		if path != "/v1/traces" || media != "application/json" {
			t.Errorf("%s: sent to %s as %s", addr, path, media)
		}
		if n := len(spansByName(t, decode(t, body))); n != 5 {
			t.Errorf("%s: %d spans arrived, want 5", addr, n)
		}
	}
	if err := Send(t.Context(), srv.URL+"/tenant/otlp", sample()); err != nil || path != "/tenant/otlp" {
		t.Errorf("a path of the user's became %s, %v", path, err)
	}
}

func TestSendSaysWhatIsWrong(t *testing.T) {
	followed := false
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/traces", func(http.ResponseWriter, *http.Request) { followed = true })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/v1/traces", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"code":3,"message":"no \u001b[31mspans\n here"}`)
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		for err := error(nil); err == nil; _, err = io.WriteString(w, strings.Repeat("x", 1<<20)) {
		}
	})
	mux.HandleFunc("/partial", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}`)
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for addr, want := range map[string]string{
		"":                         "the OTLP endpoint must begin with http://, https://, grpc:// or grpcs://",
		"ftp://x":                  "must begin with http://",
		"grpc://x/v1/traces":       "without a path",
		"http://":                  "has no host",
		"http://u:secret@x":        "without user",
		"http://u:sec%ret@x":       "not a URL such as",
		"http://x/?a=b":            "without user, query",
		srv.URL + "/redirect":      "redirects are not followed",
		srv.URL + "/bad":           "400 Bad Request: no [31mspans  here",
		srv.URL + "/nowhere":       "is it an OTLP/HTTP receiver?",
		srv.URL + "/endless":       "500 Internal Server Error: " + strings.Repeat("x", 200) + "...",
		srv.URL + "/partial":       "the receiver rejected 3 spans: too old",
		"http://127.0.0.1:1/x":     "connection refused",
		"https://" + srv.URL[7:]:   "server gave HTTP response to HTTPS client",
		"http://[::1]:99999/x":     "invalid port",
		"http://x y":               "not a URL such as",
		"http://localhost:4318#ab": "without user, query and fragment",
	} {
		err := Send(t.Context(), addr, sample())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || len(err.Error()) > 500 {
			t.Errorf("%q: %v, want %q", addr, err, want)
		}
	}
	if followed {
		t.Error("a redirect was followed")
	}
}

func TestSendVerifiesTheCertificate(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	if err := Send(t.Context(), srv.URL, sample()); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a certificate that nobody trusts: %v", err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SendTo(t.Context(), Endpoint{URL: srv.URL, CAFile: ca}, sample()); err != nil {
		t.Errorf("with the authority in a file: %v", err)
	}
	if err := os.WriteFile(ca, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Endpoint{URL: srv.URL, CAFile: ca}).Check(); err == nil || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("a file without certificates: %v", err)
	}
	if err := (Endpoint{URL: srv.URL, CAFile: ca + "x"}).Check(); err == nil {
		t.Error("a file that is not there is no error")
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "x": 0, "-5": 0, "0": 0, "7": 7 * time.Second, "999999999999999999999": 0, "86400": maxPause,
		"Tue, 17 Nov 2026 12:00:30 GMT": 30 * time.Second, "Tue, 17 Nov 2026 11:00:00 GMT": 0, "Fri, 17 Nov 2028 11:00:00 GMT": maxPause,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("Retry-After %q is %v, want %v", text, got, want)
		}
	}
}
