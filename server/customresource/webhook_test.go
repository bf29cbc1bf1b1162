package customresource

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestUnresponsiveWebhookCostsOneTimeout checks that reading a thousand objects which a webhook never converts costs one
// timeout. A webhook that responds, even with an error, is called each time.
func TestUnresponsiveWebhookCostsOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, unresponsive := 0, true
		r := &Resource{call: func(ctx context.Context, _ *apiextensionsv1.WebhookClientConfig, _ []byte) ([]byte, error) {
			if calls++; !unresponsive {
				return nil, errors.New("no")
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		begin := time.Now()
		for range 1000 {
			if _, err := r.callWebhook(t.Context(), nil, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); calls != 1 || took != conversionTimeout {
			t.Errorf("%d calls took %v, want 1 that takes %v", calls, took, conversionTimeout)
		}
		time.Sleep(breakerPause)
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := r.callWebhook(canceled, nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that goes: %v", err)
		}
		unresponsive = false
		for range 3 {
			if _, err := r.callWebhook(t.Context(), nil, nil); err == nil || err.Error() != "no" {
				t.Errorf("got %v, want the answer", err)
			}
		}
		if calls != 5 {
			t.Errorf("%d calls, want 5: a canceled client does not count as a failure of the webhook", calls)
		}
	})
}

// TestWebhookErrorMessagesAreBounded checks that the reason of a webhook, which every client that reads the object gets, is limited
// in size.
func TestWebhookErrorMessagesAreBounded(t *testing.T) {
	response := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"1","result":{"status":"Failure","message":"` + strings.Repeat("x", 1<<20) + `"}}}`
	if _, err := readReview([]byte(response), types.UID("1")); err == nil || len(err.Error()) > maxReason {
		t.Errorf("got %.100s of %d bytes", err, len(err.Error()))
	}
}
