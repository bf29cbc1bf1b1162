package run

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/control/autoscale"
	"proa.dev/kinds/gr"
	"proa.dev/server/authz"
	"proa.dev/server/discovery"
)

// autoscaler is the name of the controller that asks for measurements.
const autoscaler = "horizontal-pod-autoscaler"

const (
	// measureTimeout is how long an aggregated API server may take to say what it has measured. The autoscalers that wait for it hold up others.
	measureTimeout = 30 * time.Second
	// maxMeasured bounds what it says: 5,000 Pods with ten containers each have 8 MB. maxRefusal bounds what it says instead.
	maxMeasured = 16 << 20
	maxRefusal  = 64 << 10
)

// measurements are what autoscalers go by: the APIs of metrics, which they ask as anybody would, wherever they are served.
func (s *Server) measurements() autoscale.Metrics {
	from := autoscale.Sources{Usage: s.usage, Resources: s.anyOfKind}
	if s.aggregator != nil {
		way := s.aggregator.RoundTripper(account(autoscaler))
		from.Versions = s.remoteGroup
		from.Send = func(ctx context.Context, r *autoscale.Request) (*autoscale.Answer, error) {
			if err := s.mayMeasure(ctx, r); err != nil {
				return nil, err
			}
			return measure(ctx, way, r.URL())
		}
	}
	return autoscale.Served(from)
}

// usage is what Pods use as this server knows it.
func (s *Server) usage(ctx context.Context, namespace string, selector labels.Selector) ([]metricsv1beta1.PodMetrics, error) {
	all, err := s.front.Listed(ctx, account(autoscaler), gr.PodMetrics, namespace, selector)
	if err != nil {
		return nil, err
	}
	out := make([]metricsv1beta1.PodMetrics, len(all))
	for i, o := range all {
		out[i] = *o.(*metricsv1beta1.PodMetrics)
	}
	return out, nil
}

// remoteGroup are the versions of a group that aggregated API servers serve, in the order of discovery.
func (s *Server) remoteGroup(name string) (out []string) {
	if g := discovery.AddGroup(nil, name, s.aggregator.Versions()); g != nil {
		for _, v := range g.Versions {
			out = append(out, v.Version)
		}
	}
	return out
}

// mayMeasure asks for the permission that a request to an aggregated API server needs here too.
func (s *Server) mayMeasure(ctx context.Context, r *autoscale.Request) error {
	a := authz.Attributes{
		User: account(autoscaler), Verb: r.Verb(), IsResource: true,
		Group: r.Group, Version: r.Version, Namespace: r.Namespace, Resource: r.Resource, Name: r.Name, Subresource: r.Subresource,
	}
	decision, reason, err := s.deciders.Authorize(ctx, a)
	switch {
	case decision == authz.Allow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	return authz.Forbidden(&a, reason)
}

// measure asks an aggregated API server. What goes wrong on the way has the code that clients of this server would get. A redirect is such an
// error: nobody is asked because an answer says so.
func measure(ctx context.Context, way http.RoundTripper, to *url.URL) (*autoscale.Answer, error) {
	limited, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	a, err := sendMeasure(limited, way, to)
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return &autoscale.Answer{Code: http.StatusGatewayTimeout}, nil
	}
	return &autoscale.Answer{Code: http.StatusServiceUnavailable, Text: true, Body: []byte(err.Error())}, nil
}

func sendMeasure(ctx context.Context, way http.RoundTripper, to *url.URL) (*autoscale.Answer, error) {
	at := url.URL{Scheme: "https", Host: "elsewhere", Path: to.Path, RawQuery: to.RawQuery}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := way.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	broken := func(words string) (*autoscale.Answer, error) {
		return &autoscale.Answer{Code: http.StatusBadGateway, Text: true, Body: []byte(words)}, nil
	}
	if c := resp.StatusCode; c >= 300 && c <= 399 && resp.Header.Get("Location") != "" {
		return broken("the backend attempted to redirect this request, which is not permitted")
	}
	good := resp.StatusCode >= 200 && resp.StatusCode <= 206
	most := maxRefusal
	if good {
		most = maxMeasured
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > most && good:
		return broken(fmt.Sprintf("the answer has more than %d bytes", most))
	}
	return &autoscale.Answer{Code: resp.StatusCode, Text: isText(resp.Header.Get("Content-Type")), Body: body[:min(len(body), most)]}, nil
}

// isText says that something is for people: its type says so, or there is none.
func isText(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && strings.HasPrefix(media, "text/")
}

// anyOfKind finds the resources of a kind, also among those of aggregated API servers.
func (s *Server) anyOfKind(gk schema.GroupKind) ([]schema.GroupResource, error) {
	out, err := s.ofKind(gk)
	if err == nil {
		return out, nil
	}
	for _, d := range s.elsewhereDefs() {
		if d.GroupVersionKind.GroupKind() == gk {
			return []schema.GroupResource{d.Resource()}, nil
		}
	}
	return nil, err
}
