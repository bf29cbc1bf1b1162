package httpapi

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds"
	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/server/state"
	memorystore "proa.dev/store/memory"
)

// unresponsiveStore is a store whose Fresh blocks while unresponsive is set.
type unresponsiveStore struct {
	*memorystore.Store
	unresponsive atomic.Bool
}

func (f *unresponsiveStore) Fresh(ctx context.Context, prefix string) (int64, error) {
	if f.unresponsive.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return f.Store.Fresh(ctx, prefix)
}

// TestTokensWhileStoreIsUnresponsive checks that while the store does not answer, a token that was used before stays valid, and
// that an unknown token is soon refused with 503, not with 401.
func TestTokensWhileStoreIsUnresponsive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme, err := kinds.Scheme()
		if err != nil {
			t.Fatal(err)
		}
		store, def := &unresponsiveStore{Store: memorystore.New(memorystore.Config{})}, core.ServiceAccounts()
		s := state.New(t.Context(), codec.New(scheme), store, []*kind.Def{def}, slog.New(slog.DiscardHandler))
		defer s.Close()
		value, err := s.Codec.Store(def, &corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "known"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Commit(t.Context(), kv.Write{Key: def.Key("ns", "known"), Value: value}); err != nil {
			t.Fatal(err)
		}
		accounts := state.Accounts{State: s}
		if _, err := accounts.ServiceAccount(t.Context(), "ns", "unknown"); !apierrors.IsNotFound(err) ||
			!apierrors.IsUnauthorized(authenticationError(err)) {
			t.Errorf("an account that does not exist: %v", err)
		}
		store.unresponsive.Store(true)
		start := time.Now()
		if _, err := accounts.ServiceAccount(t.Context(), "ns", "known"); err != nil {
			t.Errorf("an account that is known: %v", err)
		}
		if _, err := accounts.ServiceAccount(t.Context(), "ns", "unknown"); !apierrors.IsServiceUnavailable(authenticationError(err)) {
			t.Errorf("an account that is not known: %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the answers took %v", took)
		}
	})
}
