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

func always(code int, body io.Reader, header ...string) transport {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(body)}, nil
	}
}

// never is a body that does not come.
type never struct{ context.Context }

func (n never) Read([]byte) (int, error) {
	<-n.Done()
	return 0, n.Err()
}

// forever is a body without an end.
type forever struct{ read *int }

func (f forever) Read(p []byte) (int, error) {
	*f.read += len(p)
	return len(p), nil
}

// TestGetMetrics holds which answer an autoscaler gets for each way in which an aggregated API server may answer or fail.
func TestGetMetrics(t *testing.T) {
	read := 0
	for name, test := range map[string]struct {
		transport
		want string
		took time.Duration
	}{
		"good":      {always(200, strings.NewReader("{}"), "Content-Type", "application/json"), "200 false {}", 0},
		"refusal":   {always(404, strings.NewReader("no"), "Content-Type", "text/plain; charset=utf-8"), "404 true no", 0},
		"no type":   {always(500, strings.NewReader("no")), "500 true no", 0},
		"odd type":  {always(500, strings.NewReader("no"), "Content-Type", ";"), "500 false no", 0},
		"redirect":  {always(302, strings.NewReader(""), "Location", "https://elsewhere/"), "502 true the backend attempted to redirect this request, which is not permitted", 0},
		"no way":    {func(*http.Request) (*http.Response, error) { return nil, errors.New("no way") }, "503 true no way", 0},
		"too much":  {always(200, forever{&read}), "502 true the answer has more than 16777216 bytes", 0},
		"a long no": {always(500, forever{&read}), "500 true " + strings.Repeat("\x00", maxErrorBytes), 0},
		"silence": {func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }, "504 false ",
			metricsTimeout},
		"half a word": {func(r *http.Request) (*http.Response, error) { return always(200, never{r.Context()})(r) }, "504 false ",
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
