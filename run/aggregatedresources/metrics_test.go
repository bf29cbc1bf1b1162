package aggregatedresources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// transport is a RoundTripper that calls a function.
type transport func(*http.Request) (*http.Response, error)

func (w transport) RoundTrip(req *http.Request) (*http.Response, error) { return w(req) }

// respond returns a transport that always sends the same response.
func respond(code int, body io.Reader, header ...string) transport {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(body)}, nil
	}
}

// blockedBody is a body whose Read blocks until the context ends.
type blockedBody struct{ context.Context }

func (n blockedBody) Read([]byte) (int, error) {
	<-n.Done()
	return 0, n.Err()
}

// endlessBody is a body without an end; read counts the bytes that were read.
type endlessBody struct{ read *int }

func (f endlessBody) Read(p []byte) (int, error) {
	*f.read += len(p)
	return len(p), nil
}

// TestGetMetrics checks which answer an autoscaler gets when an aggregated API server answers, fails or does not respond.
func TestGetMetrics(t *testing.T) {
	read := 0
	for name, test := range map[string]struct {
		transport
		want string
		took time.Duration
	}{
		"good":         {respond(200, strings.NewReader("{}"), "Content-Type", "application/json"), "200 false {}", 0},
		"refusal":      {respond(404, strings.NewReader("no"), "Content-Type", "text/plain; charset=utf-8"), "404 true no", 0},
		"no type":      {respond(500, strings.NewReader("no")), "500 true no", 0},
		"odd type":     {respond(500, strings.NewReader("no"), "Content-Type", ";"), "500 false no", 0},
		"redirect":     {respond(302, strings.NewReader(""), "Location", "https://elsewhere/"), "502 true the backend attempted to redirect this request, which is not permitted", 0},
		"no way":       {func(*http.Request) (*http.Response, error) { return nil, errors.New("no way") }, "503 true no way", 0},
		"too much":     {respond(200, endlessBody{&read}), "502 true the answer has more than 16777216 bytes", 0},
		"a long error": {respond(500, endlessBody{&read}), "500 true " + strings.Repeat("\x00", maxErrorBytes), 0},
		"no response": {func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }, "504 false ",
			metricsTimeout},
		"no body": {func(r *http.Request) (*http.Response, error) { return respond(200, blockedBody{r.Context()})(r) }, "504 false ",
			metricsTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			a, err := GetMetrics(t.Context(), test.transport, &url.URL{Path: "/apis/g/v/namespaces/ns/pods/*/x"})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := fmt.Sprintf("%d %v %s", a.Code, a.Text, a.Body); got != test.want {
				t.Errorf("%s: got %.200q, want %.200q", name, got, test.want)
			}
			if took := time.Since(began); took != test.took {
				t.Errorf("%s: it took %v", name, took)
			}
		})
	}
	if read > 2*(maxMetricsBytes+maxErrorBytes) {
		t.Errorf("%d bytes were read", read)
	}
}
