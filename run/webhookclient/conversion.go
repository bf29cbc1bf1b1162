package webhookclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"proa.dev/server/customresource"
	"proa.dev/server/extensionclient"
)

// maxConversionBytes bounds the answer of a conversion webhook.
const maxConversionBytes = 16 << 20

// Conversions returns the function that calls the webhooks which convert custom objects.
func Conversions(clients *extensionclient.Clients) customresource.Caller {
	return func(ctx context.Context, hook *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error) {
		to := extensionclient.WebhookEndpoint(hook.URL, (*extensionclient.ServiceReference)(hook.Service), hook.CABundle)
		client, at, err := clients.Client(&to)
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json")
		res, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(io.LimitReader(res.Body, maxConversionBytes+1))
		switch {
		case err != nil:
			return nil, err
		case len(answer) > maxConversionBytes:
			return nil, fmt.Errorf("the answer has more than %d bytes", maxConversionBytes)
		case res.StatusCode != http.StatusOK:
			return nil, fmt.Errorf("the server answered %s", res.Status)
		}
		return answer, nil
	}
}
