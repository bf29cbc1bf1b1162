package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Accounts finds the objects that service account tokens are bound to, for authentication.
type Accounts struct{ State *State }

// ServiceAccount finds a service account.
func (a Accounts) ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return lookup[*corev1.ServiceAccount](ctx, a.State, "serviceaccounts", namespace, name)
}

// Pod finds a Pod.
func (a Accounts) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return lookup[*corev1.Pod](ctx, a.State, "pods", namespace, name)
}

// Secret finds a Secret.
func (a Accounts) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return lookup[*corev1.Secret](ctx, a.State, "secrets", namespace, name)
}

// Node finds a node.
func (a Accounts) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return lookup[*corev1.Node](ctx, a.State, "nodes", "", name)
}

// ErrAccountsUnavailable says that the store does not answer, so that it is unknown whether a token is still valid.
// That is no 401.
var ErrAccountsUnavailable = errors.New("the store does not say whether the token is good")

// lookupTimeout is how long authentication waits for the newest state of an object whose cache is loaded.
const lookupTimeout = 250 * time.Millisecond

// lookup reads the newest state of an object that a token is bound to. While the store does not answer, the state of
// the cache is used, as it is for roles: the request itself will need the store.
func lookup[P kind.Object](ctx context.Context, s *State, resource, namespace, name string) (P, error) {
	var none P
	gr := schema.GroupResource{Resource: resource}
	limited := ctx
	if s.Cache(s.Def(gr)).Rev() > 0 {
		var stop context.CancelFunc
		limited, stop = context.WithTimeout(ctx, lookupTimeout)
		defer stop()
	}
	o, err := s.Get(limited, gr, namespace, name)
	if apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) {
		cached, found := s.peek(gr, namespace, name)
		if !found {
			return none, fmt.Errorf("%w: %w", ErrAccountsUnavailable, err)
		}
		o, err = cached, nil
	}
	if err != nil {
		return none, err
	}
	return o.(P), nil
}
