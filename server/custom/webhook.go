package custom

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

// conversionTimeout bounds how long a webhook may take.
const conversionTimeout = 30 * time.Second

// webhook is what converts objects; nil if versions differ by name only.
func (r *Resource) webhook() *apiextensionsv1.WebhookConversion {
	c := r.Definition.Spec.Conversion
	if c == nil || c.Strategy != apiextensionsv1.WebhookConverter {
		return nil
	}
	return c.Webhook
}

// ConvertsByWebhook reports whether objects of other versions cannot be read while a webhook does not answer.
func (r *Resource) ConvertsByWebhook() bool { return r.webhook() != nil }

// ask has an object converted by the webhook.
func (r *Resource) ask(ctx context.Context, hook *apiextensionsv1.WebhookConversion, u *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	from := u.GroupVersionKind()
	if r.call == nil || hook.ClientConfig == nil {
		return nil, fmt.Errorf("conversion webhook for %v failed: this server cannot reach webhooks", from)
	}
	uid := types.UID(uuid.NewString())
	body, err := reviewOf(hook.ConversionReviewVersions, u, to, uid)
	if err != nil {
		return nil, err
	}
	answer, err := r.asked(ctx, hook.ClientConfig, body)
	if err != nil && unreached(err) {
		return nil, fmt.Errorf("conversion webhook for %v failed: %w", from, err)
	}
	if err != nil {
		return nil, &saidError{fmt.Errorf("conversion webhook for %v failed: %w", from, err), from}
	}
	out, err := read(u, answer, uid, to)
	if err != nil {
		return nil, &saidError{err, from}
	}
	return out, nil
}

// unreached says that an error is about the way to a webhook, and not about what it has answered.
func unreached(err error) bool {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// saidError is an error that repeats what a webhook has answered, which may repeat what it was asked. Clients see it, logs do not.
type saidError struct {
	error
	from schema.GroupVersionKind
}

func (e *saidError) Unwrap() error { return e.error }

// LogValue is the error as logs have it.
func (e *saidError) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("conversion webhook for %v failed: it answered with an error or something unexpected", e.from))
}

// read takes the converted object out of the answer of a webhook.
func read(u *unstructured.Unstructured, answer []byte, uid types.UID, to schema.GroupVersion) (*unstructured.Unstructured, error) {
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

// patience is what is known of a webhook that lets everybody wait.
type patience struct {
	mu    sync.Mutex // guards what follows
	until time.Time  // nobody asks before
	err   error
}

// restAfterTimeout is how long a webhook is not asked after it has used up its time. A list of a thousand objects that nobody converts then
// costs one timeout, not a thousand.
const restAfterTimeout = time.Second

// asked sends a question to the webhook, unless that has just let somebody wait for nothing.
func (r *Resource) asked(ctx context.Context, config *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error) {
	p := &r.patience
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
		p.until, p.err = time.Now().Add(restAfterTimeout), err
		p.mu.Unlock()
	}
	return answer, err
}

// maxReason bounds what a webhook may say about why it does not convert an object.
const maxReason = 4 << 10

// reviewOf is the question to a webhook, in the first version of the review that both sides know.
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

// readReview reads the answer of a webhook.
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

// checkConverted finds what a webhook must not change.
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

// restoreMeta gives a converted object the metadata that it had before. Only labels and annotations may be converted.
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
