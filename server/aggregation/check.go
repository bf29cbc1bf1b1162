package aggregation

import (
	"context"
	"fmt"
	"net/http"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// checkAttempts is how often a server is asked before it counts as unavailable: one of several behind a Service may be
// shutting down.
const checkAttempts = 2

// Check requests the document of the group version, which every server must have, from the server of an APIService. The
// error says why it is not available.
func (a *Aggregator) Check(ctx context.Context, s *apiregistrationv1.APIService) error {
	b := backendOf(s)
	var err error
	for range checkAttempts {
		if err = a.checkOnce(ctx, b); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (a *Aggregator) checkOnce(ctx context.Context, b *backend) error {
	_, at, err := a.Clients.Client(&b.endpoint)
	if err != nil {
		return err
	}
	at.Path = b.base()
	got, err := a.fetchOne(ctx, b, b.base(), acceptJSON, "", maxDiscovery)
	if err != nil {
		return fmt.Errorf("failing or missing response from %v: %w", at, err)
	}
	if got.code < http.StatusOK || got.code >= http.StatusMultipleChoices {
		return fmt.Errorf("failing or missing response from %v: bad status from %v: %d", at, at, got.code)
	}
	return nil
}
