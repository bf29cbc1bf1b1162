package run_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
	"k8s.io/client-go/rest"

	"proa.dev/proatest"
)

// TestNativeHistogramsOfTheServer checks that a scrape of a running server in protobuf has native histograms.
func TestNativeHistogramsOfTheServer(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	getPath(t, c, "/api/v1/namespaces/default")
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Config.Host+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	// A request is counted after it was answered.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		f := scrapeFamily(t, client, req, "apiserver_request_duration_seconds")
		if f == nil && time.Now().Before(deadline) {
			continue
		}
		if f == nil {
			t.Fatal("no apiserver_request_duration_seconds")
		}
		if h := f.GetMetric()[0].GetHistogram(); len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) == 0 {
			t.Errorf("%v", h)
		}
		return
	}
}

// scrapeFamily scrapes metrics in protobuf, and returns the family of a name; nil if there is none.
func scrapeFamily(t *testing.T, client *http.Client, req *http.Request, name string) *dto.MetricFamily {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "application/vnd.google.protobuf") {
		t.Fatalf("%d %s", resp.StatusCode, got)
	}
	for in := bufio.NewReader(resp.Body); ; {
		var f dto.MetricFamily
		err := protodelim.UnmarshalFrom(in, &f)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.GetName() == name {
			return &f
		}
	}
}
