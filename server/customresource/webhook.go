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

	"proa.dev/kinds/kind"
)

const (
	// conversionTimeout limits how long a conversion webhook may take for all objects that are converted together.
	conversionTimeout = 30 * time.Second
	// A review has at most maxReviewed objects, of maxReviewBytes together unless a single object is larger.
	maxReviewed, maxReviewBytes = 500, 2 << 20
)

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

// conversion is the conversion of some objects by a webhook.
type conversion struct {
	hook     *apiextensionsv1.WebhookConversion
	to       schema.GroupVersion
	deadline time.Time // for all of them
}

// convertByWebhook converts objects by the webhook, many with one review, and sets out, which has a place for each.
func (r *Resource) convertByWebhook(ctx context.Context, c *conversion, objects []*unstructured.Unstructured, out []kind.Loaded) {
	var encoded []runtime.RawExtension
	begin, size := 0, 0
	for i, u := range objects {
		raw, err := u.MarshalJSON()
		if err != nil { // unexpected: all have a kind
			for j := range out {
				out[j].Err = err
			}
			return
		}
		if len(encoded) > 0 && (len(encoded) == maxReviewed || size+len(raw) > maxReviewBytes) {
			r.review(ctx, c, objects[begin:i], encoded, out[begin:i])
			encoded, begin, size = nil, i, 0
		}
		encoded, size = append(encoded, runtime.RawExtension{Raw: raw}), size+len(raw)
	}
	r.review(ctx, c, objects[begin:], encoded, out[begin:])
}

// review converts objects with one review. If the webhook rejects the review as a whole, its halves are reviewed, because the objects
// of a list and of a watch have nothing to do with each other: those that cannot be converted must not hide the others.
func (r *Resource) review(ctx context.Context, c *conversion, objects []*unstructured.Unstructured, encoded []runtime.RawExtension,
	out []kind.Loaded) {
	converted, err := r.sendReview(ctx, c, objects[0].GroupVersionKind(), encoded)
	if _, answered := errors.AsType[*responseError](err); answered && len(objects) > 1 {
		half := len(objects) / 2
		r.review(ctx, c, objects[:half], encoded[:half], out[:half])
		r.review(ctx, c, objects[half:], encoded[half:], out[half:])
		return
	}
	for i, u := range objects {
		if err != nil {
			out[i].Err = err
		} else if o, wrong := readConverted(u, &converted[i], i, c.to); wrong != nil {
			out[i].Err = &responseError{wrong, u.GroupVersionKind()}
		} else {
			out[i].Object = o
		}
	}
}

// sendReview calls the webhook and returns as many objects as were sent.
func (r *Resource) sendReview(ctx context.Context, c *conversion, from schema.GroupVersionKind, objects []runtime.RawExtension) (
	[]runtime.RawExtension, error) {
	if r.call == nil || c.hook.ClientConfig == nil {
		return nil, fmt.Errorf("conversion webhook for %v failed: this server cannot reach webhooks", from)
	}
	uid := types.UID(uuid.NewString())
	body, err := reviewOf(c.hook.ConversionReviewVersions, objects, c.to, uid)
	if err != nil {
		return nil, err
	}
	answer, err := r.callWebhook(ctx, c.deadline, c.hook.ClientConfig, body)
	if err != nil && isConnectionError(err) {
		return nil, fmt.Errorf("conversion webhook for %v failed: %w", from, err)
	}
	var converted []runtime.RawExtension
	if err == nil {
		converted, err = readReview(answer, uid)
	}
	if err != nil {
		return nil, &responseError{fmt.Errorf("conversion webhook for %v failed: %w", from, err), from}
	}
	if len(converted) != len(objects) {
		err = fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", from, len(converted), len(objects))
		return nil, &responseError{err, from}
	}
	return converted, nil
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

// readConverted returns the object that a webhook has made of u. index is its place in the response.
func readConverted(u *unstructured.Unstructured, converted *runtime.RawExtension, index int, to schema.GroupVersion) (
	*unstructured.Unstructured, error) {
	from := u.GroupVersionKind()
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(converted.Raw); err != nil {
		return nil, fmt.Errorf("conversion webhook for %v returned invalid object at index %d: %w", from, index, err)
	}
	if err := checkConverted(u, out, index, to); err != nil {
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

// callWebhook sends a review to the webhook, unless the webhook has just timed out, and waits for the response until deadline.
func (r *Resource) callWebhook(ctx context.Context, deadline time.Time, config *apiextensionsv1.WebhookClientConfig,
	body []byte) ([]byte, error) {
	p := &r.breaker
	p.mu.Lock()
	until, last := p.until, p.err
	p.mu.Unlock()
	if time.Now().Before(until) {
		return nil, last
	}
	limited, stop := context.WithDeadline(ctx, deadline)
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
func reviewOf(known []string, objects []runtime.RawExtension, to schema.GroupVersion, uid types.UID) ([]byte, error) {
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
	return json.Marshal(apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.GroupName + "/" + version, Kind: "ConversionReview"},
		Request:  &apiextensionsv1.ConversionRequest{UID: uid, DesiredAPIVersion: to.String(), Objects: objects},
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
func checkConverted(in, out *unstructured.Unstructured, index int, to schema.GroupVersion) error {
	got := out.GroupVersionKind()
	switch {
	case got.GroupVersion() != to:
		return fmt.Errorf("object at index %d: invalid groupVersion (expected %v, received %v)", index, to, got.GroupVersion())
	case got.Kind != in.GetKind():
		return fmt.Errorf("object at index %d: invalid kind (expected %v, received %v)", index, in.GetKind(), got.Kind)
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
