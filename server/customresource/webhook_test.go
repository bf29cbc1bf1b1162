package customresource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
			if _, err := r.callWebhook(t.Context(), begin.Add(conversionTimeout), nil, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); calls != 1 || took != conversionTimeout {
			t.Errorf("%d calls took %v, want 1 that takes %v", calls, took, conversionTimeout)
		}
		time.Sleep(breakerPause)
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := r.callWebhook(canceled, time.Now().Add(conversionTimeout), nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that goes: %v", err)
		}
		unresponsive = false
		for range 3 {
			if _, err := r.callWebhook(t.Context(), time.Now().Add(conversionTimeout), nil, nil); err == nil || err.Error() != "no" {
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

// convertedResource returns a resource whose objects are stored as v1 and converted to v2 by a webhook that calls change for each object.
// It rejects a review with the error of change.
func convertedResource(ctx context.Context, took time.Duration, change func(*unstructured.Unstructured) error) (r *Resource, sizes *[]int) {
	hook := &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"},
		ClientConfig: &apiextensionsv1.WebhookClientConfig{}}
	versions := []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}, {Name: "v2", Served: true}}
	d := &Definition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com",
		Names:                 apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
		Conversion:            &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: hook},
		PreserveUnknownFields: true, Versions: versions}}
	d.Status.AcceptedNames = d.Spec.Names
	sizes = new([]int)
	call := func(ctx context.Context, _ *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error) {
		var review apiextensionsv1.ConversionReview
		if err := json.Unmarshal(body, &review); err != nil {
			return nil, err
		}
		*sizes = append(*sizes, len(review.Request.Objects))
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, o := range review.Request.Objects {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(o.Raw); err != nil {
				return nil, err
			}
			u.SetAPIVersion(review.Request.DesiredAPIVersion)
			if err := change(u); err != nil {
				review.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			}
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: u})
		}
		review.Request = nil
		return json.Marshal(review)
	}
	return New(ctx, d, func() *Definition { return d }, call), sizes
}

// TestObjectsAreConvertedTogether checks that a webhook gets many objects with a review, that an object which it does not convert hides
// no other one, and that a list costs one timeout and nothing after its client has gone.
func TestObjectsAreConvertedTogether(t *testing.T) {
	rejects := func(name string) func(*unstructured.Unstructured) error {
		return func(u *unstructured.Unstructured) error {
			if u.GetName() == name || name == "all" {
				return errors.New("no")
			}
			return nil
		}
	}
	for _, test := range []struct {
		what     string
		objects  int
		bytes    int           // of each
		took     time.Duration // by each review
		leaves   time.Duration // 0 for a client that stays
		change   func(*unstructured.Unstructured) error
		reviews  int // at most
		first    int // objects of the first review
		failed   int
		duration time.Duration
	}{
		{"many small ones", 1200, 10, time.Millisecond, 0, rejects(""), 3, 500, 0, 3 * time.Millisecond},
		{"large ones", 10, 900 << 10, 0, 0, rejects(""), 5, 2, 0, 0},
		{"larger than a review", 2, 3 << 20, 0, 0, rejects(""), 2, 1, 0, 0},
		{"one is rejected", 500, 10, 0, 0, rejects("x250"), 19, 500, 1, 0},
		{"all are rejected", 64, 10, 0, 0, rejects("all"), 127, 64, 64, 0},
		{"one becomes another object", 500, 10, 0, 0, func(u *unstructured.Unstructured) error {
			if u.GetName() == "x7" {
				u.SetName("other")
			}
			return nil
		}, 1, 500, 1, 0},
		{"a slow webhook", 5000, 10, 8 * time.Second, 0, rejects(""), 4, 500, 3500, conversionTimeout},
		{"a client that goes", 1200, 10, 8 * time.Second, 10 * time.Second, rejects(""), 2, 500, 700, 10 * time.Second},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, sizes := convertedResource(t.Context(), test.took, test.change)
				var values [][]byte
				for i := range test.objects {
					values = append(values, fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x%d"},"text":%q}`,
						i, strings.Repeat("x", test.bytes)))
				}
				if test.leaves > 0 {
					time.AfterFunc(test.leaves, cancel)
				}
				begin, failed := time.Now(), 0
				for i, l := range r.versions["v2"].loadAll(ctx, values) {
					if l.Err != nil {
						failed++
						continue
					}
					u := l.Object.(*unstructured.Unstructured)
					if u.GetAPIVersion() != "example.com/v2" || u.GetName() != fmt.Sprintf("x%d", i) {
						t.Errorf("object %d is %s %s", i, u.GetAPIVersion(), u.GetName())
					}
				}
				if took := time.Since(begin); failed != test.failed || took != test.duration {
					t.Errorf("%d failed in %v, want %d in %v", failed, took, test.failed, test.duration)
				}
				answered := 0
				for _, n := range *sizes {
					if answered++; n > maxReviewed {
						t.Errorf("a review of %d objects", n)
					}
				}
				if (*sizes)[0] != test.first || test.leaves == 0 && test.took < time.Second && answered > test.reviews {
					t.Errorf("%d reviews, the first of %d objects, want %d and %d", answered, (*sizes)[0], test.reviews, test.first)
				}
			})
		})
	}
}
