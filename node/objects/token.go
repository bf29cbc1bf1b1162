package objects

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
)

// A token is renewed when a fifth of its lifetime is left or when it is a day old, a random time earlier.
const (
	longest  = 24 * time.Hour
	jitter   = 10 * time.Second
	tryAgain = 10 * time.Second
)

// tokens are the service account tokens that Pods were given.
type tokens struct {
	client client.Client
	log    *slog.Logger
	// mu guards held.
	mu   sync.Mutex
	held map[string]*heldToken
}

type heldToken struct {
	request *authenticationv1.TokenRequest
	renew   time.Time
}

// Token returns a token of a service account, as a request describes it, and the time at which to call it again for a
// newer one. It is kept until the Pod that it is bound to is dropped.
func (r *Refs) Token(ctx context.Context, namespace, account string,
	request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, time.Time, error) {
	t := &r.tokens
	k := tokenKey(namespace, account, request)
	t.mu.Lock()
	old := t.held[k]
	t.mu.Unlock()
	now := time.Now()
	if old != nil && now.Before(old.renew) {
		return old.request, old.renew, nil
	}
	o, err := t.client.Act(ctx, gr.ServiceAccounts, namespace, account, "token", request.DeepCopy())
	made, ok := o.(*authenticationv1.TokenRequest)
	if err == nil && !ok {
		err = fmt.Errorf("the answer is a %T", o)
	}
	switch {
	case err == nil:
		renew := renewAt(made, wait.Jitter(jitter))
		t.mu.Lock()
		t.held[k] = &heldToken{made, renew}
		t.mu.Unlock()
		return made, renew, nil
	case old == nil:
		return nil, time.Time{}, fmt.Errorf("failed to fetch token: %w", err)
	case now.After(old.request.Status.ExpirationTimestamp.Time):
		return nil, time.Time{}, fmt.Errorf("token %s expired and refresh failed: %w", k, err)
	}
	t.log.WarnContext(ctx, "a token could not be renewed; the old one is still valid", "token", k, "err", err)
	return old.request, now.Add(tryAgain), nil
}

// renewAt returns when a token is to be renewed.
func renewAt(t *authenticationv1.TokenRequest, early time.Duration) time.Time {
	end := t.Status.ExpirationTimestamp.Time
	if t.Spec.ExpirationSeconds == nil {
		return end
	}
	life := time.Duration(*t.Spec.ExpirationSeconds) * time.Second
	renew := end.Add(-life / 5)
	if day := end.Add(-life).Add(longest); day.Before(renew) {
		renew = day
	}
	return renew.Add(-early)
}

// tokenKey identifies a request. It contains nothing secret.
func tokenKey(namespace, account string, t *authenticationv1.TokenRequest) string {
	var seconds int64
	if t.Spec.ExpirationSeconds != nil {
		seconds = *t.Spec.ExpirationSeconds
	}
	var bound authenticationv1.BoundObjectReference
	if t.Spec.BoundObjectRef != nil {
		bound = *t.Spec.BoundObjectRef
	}
	return fmt.Sprintf("%q/%q/%#v/%#v/%#v/%q", account, namespace, t.Spec.Audiences, seconds, bound, t.UID)
}

func (t *tokens) drop(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for k, h := range t.held {
		bound := h.request.Spec.BoundObjectRef
		if bound != nil && bound.UID == uid || now.After(h.request.Status.ExpirationTimestamp.Time) {
			delete(t.held, k)
		}
	}
}
