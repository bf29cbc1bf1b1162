package customresource

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// conversionTimeout limits how long a conversion webhook may take.
const conversionTimeout = 30 * time.Second

// webhook returns the conversion webhook; nil if versions differ by name only.
func (r *Resource) webhook() *apiextensionsv1.WebhookConversion {
	c := r.Definition.Spec.Conversion
	if c == nil || c.Strategy != apiextensionsv1.WebhookConverter {
		return nil
	}
	return c.Webhook
}

// ConvertsByWebhook reports whether objects of other versions cannot be read while a webhook does not respond.
func (r *Resource) ConvertsByWebhook() bool { return r.webhook() != nil }

// convertByWebhook converts an object by the webhook.
func (r *Resource) convertByWebhook(ctx context.Context, hook *apiextensionsv1.WebhookConversion, u *unstructured.Unstructured,
	to schema.GroupVersion) (*unstructured.Unstructured, error) {
	from := u.GroupVersionKind()
	if r.call == nil || hook.ClientConfig == nil {
		return nil, fmt.Errorf("conversion webhook for %v failed: this server cannot reach webhooks", from)
	}
	uid := types.UID(uuid.NewString())
	body, err := reviewOf(hook.ConversionReviewVersions, u, to, uid)
	if err != nil {
		return nil, err
	}
	answer, err := r.callWebhook(ctx, hook.ClientConfig, body)
	if err != nil && isConnectionError(err) {
		return nil, fmt.Errorf("conversion webhook for %v failed: %w", from, err)
	}
	if err != nil {
		return nil, &responseError{fmt.Errorf("conversion webhook for %v failed: %w", from, err), from}
	}
	out, err := readConverted(u, answer, uid, to)
	if err != nil {
		return nil, &responseError{err, from}
	}
	return out, nil
}

// isConnectionError reports whether an error is about the connection to a webhook, and not about its response.
func isConnectionError(err error) bool {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// responseError is an error that repeats what a webhook has responded, which may repeat the object. Clients see it,
// logs do not.
type responseError struct {
	error
	from schema.GroupVersionKind
}

func (e *responseError) Unwrap() error { return e.error }

// LogValue returns the text for logs.
func (e *responseError) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("conversion webhook for %v failed: it answered with an error or something unexpected", e.from))
}

// readConverted returns the converted object in the response of a webhook.
func readConverted(u *unstructured.Unstructured, answer []byte, uid types.UID, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	from := u.GroupVersionKind()
	objects, err := readReview(answer, uid)
	if err != nil {
		return nil, fmt.Errorf("conversion webhook for %v failed: %w", from, err)
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", from, len(objects), 1)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(objects[0].Raw); err != nil {
		return nil, fmt.Errorf("conversion webhook for %v returned invalid object at index 0: %w", from, err)
	}
	if err := checkConverted(u, out, to); err != nil {
		return nil, fmt.Errorf("conversion webhook for %v returned invalid %w", from, err)
	}
	return out, restoreMeta(u, out)
}

// breaker keeps conversions from waiting for a webhook that has just timed out.
type breaker struct {
	mu    sync.Mutex // guards what follows
	until time.Time  // the webhook is not called before
	err   error
}

// breakerPause is how long a webhook is not called after a timeout. A list of a thousand objects then costs one
// timeout, not a thousand.
const breakerPause = time.Second

// callWebhook sends a review to the webhook, unless the webhook has just timed out.
func (r *Resource) callWebhook(ctx context.Context, config *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error) {
	p := &r.breaker
	p.mu.Lock()
	until, last := p.until, p.err
	p.mu.Unlock()
	if time.Now().Before(until) {
		return nil, last
	}
	limited, stop := context.WithTimeout(ctx, conversionTimeout)
	defer stop()
	answer, err := r.call(limited, config, body)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		p.mu.Lock()
		p.until, p.err = time.Now().Add(breakerPause), err
		p.mu.Unlock()
	}
	return answer, err
}

// maxReason is the length of the longest reason that a webhook may give for not converting an object.
const maxReason = 4 << 10

// reviewOf returns the review for a webhook, in the first version that both sides know.
func reviewOf(known []string, u *unstructured.Unstructured, to schema.GroupVersion, uid types.UID) ([]byte, error) {
	version := ""
	for _, v := range known {
		if v == "v1" || v == "v1beta1" {
			version = v
			break
		}
	}
	if version == "" {
		return nil, errors.New("no supported conversion review versions")
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return json.Marshal(apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.GroupName + "/" + version, Kind: "ConversionReview"},
		Request:  &apiextensionsv1.ConversionRequest{UID: uid, DesiredAPIVersion: to.String(), Objects: []runtime.RawExtension{{Raw: raw}}},
	})
}

// readReview decodes the response of a webhook.
func readReview(answer []byte, uid types.UID) ([]runtime.RawExtension, error) {
	var review apiextensionsv1.ConversionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, err
	}
	versions := []string{apiextensionsv1.GroupName + "/v1", apiextensionsv1.GroupName + "/v1beta1"}
	if review.Kind != "ConversionReview" || !slices.Contains(versions, review.APIVersion) {
		return nil, fmt.Errorf("expected webhook response of %v, got %v",
			apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview"), review.GroupVersionKind())
	}
	got := review.Response
	switch {
	case got == nil:
		return nil, errors.New("no response provided")
	case review.APIVersion == versions[0] && got.UID != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, got.UID)
	case got.Result.Status != metav1.StatusSuccess && got.Result.Message != "":
		return nil, errors.New(got.Result.Message[:min(len(got.Result.Message), maxReason)])
	case got.Result.Status != metav1.StatusSuccess:
		return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", got.Result.Status)
	}
	return got.ConvertedObjects, nil
}

// checkConverted checks what a webhook must not change.
func checkConverted(in, out *unstructured.Unstructured, to schema.GroupVersion) error {
	got := out.GroupVersionKind()
	switch {
	case got.GroupVersion() != to:
		return fmt.Errorf("object at index 0: invalid groupVersion (expected %v, received %v)", to, got.GroupVersion())
	case got.Kind != in.GetKind():
		return fmt.Errorf("object at index 0: invalid kind (expected %v, received %v)", in.GetKind(), got.Kind)
	case out.GetName() != in.GetName():
		return fmt.Errorf("object: must have the same name: %v != %v", in.GetName(), out.GetName())
	case out.GetNamespace() != in.GetNamespace():
		return fmt.Errorf("object: must have the same namespace: %v != %v", in.GetNamespace(), out.GetNamespace())
	case out.GetUID() != in.GetUID():
		return fmt.Errorf("object: must have the same UID: %v != %v", in.GetUID(), out.GetUID())
	}
	if _, ok := out.Object["metadata"].(map[string]any); !ok {
		return fmt.Errorf("metadata: missing metadata in converted object")
	}
	return nil
}

// restoreMeta restores the metadata of a converted object. A webhook may only change labels and annotations.
func restoreMeta(in, out *unstructured.Unstructured) error {
	converted, _ := out.Object["metadata"].(map[string]any)
	original, _ := in.Object["metadata"].(map[string]any)
	meta := runtime.DeepCopyJSON(original)
	if meta == nil {
		meta = map[string]any{}
	}
	for _, field := range []string{"labels", "annotations"} {
		delete(meta, field)
		texts, found := converted[field]
		if !found || texts == nil {
			continue
		}
		entries, ok := texts.(map[string]any)
		if !ok {
			return fmt.Errorf("conversion webhook for %v returned invalid metadata: metadata.%s is of type %T", in.GroupVersionKind(), field, texts)
		}
		for key, value := range entries {
			if _, ok := value.(string); !ok {
				return fmt.Errorf("conversion webhook for %v returned invalid metadata: metadata.%s[%q] is of type %T", in.GroupVersionKind(), field, key, value)
			}
		}
		meta[field] = entries
	}
	out.Object["metadata"] = meta
	return nil
}
