package run

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"proa.dev/server/custom"
	"proa.dev/server/extension"
)

// conversionAnswer bounds what a conversion webhook may answer.
const conversionAnswer = 16 << 20

// conversions returns what reaches the webhooks that convert custom objects.
func conversions(clients *extension.Clients) custom.Caller {
	return func(ctx context.Context, hook *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error) {
		to := extension.WebhookEndpoint(hook.URL, (*extension.ServiceReference)(hook.Service), hook.CABundle)
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
		answer, err := io.ReadAll(io.LimitReader(res.Body, conversionAnswer+1))
		switch {
		case err != nil:
			return nil, err
		case len(answer) > conversionAnswer:
			return nil, fmt.Errorf("the answer has more than %d bytes", conversionAnswer)
		case res.StatusCode != http.StatusOK:
			return nil, fmt.Errorf("the server answered %s", res.Status)
		}
		return answer, nil
	}
}
