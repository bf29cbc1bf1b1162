package aggregatedresources

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"proa.dev/control/podautoscaler"
)

const (
	// metricsTimeout is how long an aggregated API server may take to answer. Other autoscalers wait meanwhile.
	metricsTimeout = 30 * time.Second
	// maxMetricsBytes bounds the answer: that for 5,000 Pods with ten containers each has 8 MB.
	maxMetricsBytes = 16 << 20
	// maxErrorBytes bounds an answer that is not a success.
	maxErrorBytes = 64 << 10
)

// GetMetrics reads metrics from an aggregated API server. If the server cannot be reached, the answer has the status code that a client of
// this server would get. Redirects are not followed; they count as an error.
func GetMetrics(ctx context.Context, transport http.RoundTripper, to *url.URL) (*podautoscaler.Answer, error) {
	limited, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	a, err := sendMetricsRequest(limited, transport, to)
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return &podautoscaler.Answer{Code: http.StatusGatewayTimeout}, nil
	}
	return &podautoscaler.Answer{Code: http.StatusServiceUnavailable, Text: true, Body: []byte(err.Error())}, nil
}

func sendMetricsRequest(ctx context.Context, transport http.RoundTripper, to *url.URL) (*podautoscaler.Answer, error) {
	at := url.URL{Scheme: "https", Host: "elsewhere", Path: to.Path, RawQuery: to.RawQuery}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	broken := func(words string) (*podautoscaler.Answer, error) {
		return &podautoscaler.Answer{Code: http.StatusBadGateway, Text: true, Body: []byte(words)}, nil
	}
	if c := resp.StatusCode; c >= 300 && c <= 399 && resp.Header.Get("Location") != "" {
		return broken("the backend attempted to redirect this request, which is not permitted")
	}
	good := resp.StatusCode >= 200 && resp.StatusCode <= 206
	most := maxErrorBytes
	if good {
		most = maxMetricsBytes
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > most && good:
		return broken(fmt.Sprintf("the answer has more than %d bytes", most))
	}
	return &podautoscaler.Answer{Code: resp.StatusCode, Text: isText(resp.Header.Get("Content-Type")),
		Body: body[:min(len(body), most)]}, nil
}

// isText tells whether a body is text for people: if it has a text type, or no type.
func isText(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && strings.HasPrefix(media, "text/")
}
