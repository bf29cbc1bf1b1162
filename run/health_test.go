package run

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/kinds"
	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/run/settings"
	"proa.dev/server/healthz"
	"proa.dev/server/state"
	"proa.dev/store/memory"
)

// frozen is a store that does not answer questions about its health while it is frozen.
type frozen struct {
	*memory.Store
	is atomic.Bool
}

func (f *frozen) Healthy(ctx context.Context) error {
	if f.is.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// outsideServer is as much of a server on an etcd elsewhere as health is about.
func outsideServer(t *testing.T, store Store) *Server {
	t.Helper()
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s := &Server{Config: Config{Config: settings.Config{EtcdServers: []string{"http://elsewhere"}}}, log: log, store: store}
	s.state = state.New(t.Context(), codec.New(scheme), store, []*kind.Def{core.ConfigMaps()}, log)
	s.ready.Store(true)
	return s
}

// get asks a health endpoint and says how long the answer took.
func get(t *testing.T, s *Server, path string) (code int, text string, took time.Duration) {
	t.Helper()
	began := time.Now()
	w := httptest.NewRecorder()
	(&healthz.Endpoints{Checks: s.checks()}).Handler().ServeHTTP(w,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String(), time.Since(began)
}

// TestHealthWhileStoreIsFrozen: /livez and /readyz answer at once while the store does not, and name it.
func TestHealthWhileStoreIsFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &frozen{Store: memory.New(memory.Config{})}
		s := outsideServer(t, store)
		defer s.state.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.watchHealth(ctx)
		for _, is := range []bool{false, true, false} {
			store.is.Store(is)
			time.Sleep(probePause + probeTimeout + time.Millisecond)
			for _, path := range []string{"/livez", "/readyz", "/healthz"} {
				code, text, took := get(t, s, path)
				if (code != http.StatusOK) != is || is && !strings.Contains(text, "[-]etcd failed") || took > 0 {
					t.Errorf("frozen %v: %s says %d %q after %v", is, path, code, text, took)
				}
			}
		}
	})
}

// TestReadinessKnowsStuckWatches: a cache that does not follow the store makes the server not ready, and no longer when it does.
func TestReadinessKnowsStuckWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Bool
		stuck.Store(true)
		store := memory.New(memory.Config{Hook: func(op, _ string) error {
			if op == "watch" && stuck.Load() {
				return errors.New("no route")
			}
			return nil
		}})
		s := outsideServer(t, store)
		defer s.state.Close()
		s.state.Cache(core.ConfigMaps())
		synctest.Wait()
		if _, err := store.Commit(t.Context(), kv.Write{Key: "/registry/others/x", Value: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.watchHealth(ctx)
		for _, is := range []bool{true, false} {
			stuck.Store(is)
			time.Sleep(2 * (probePause + probeTimeout))
			code, text, _ := get(t, s, "/readyz")
			if (code != http.StatusOK) != is || is && !strings.Contains(text, "[-]watches failed") {
				t.Errorf("stuck %v: /readyz says %d %q", is, code, text)
			}
			if code, text, _ := get(t, s, "/livez"); code != http.StatusOK {
				t.Errorf("stuck %v: /livez says %d %q", is, code, text)
			}
		}
	})
}

// TestHealthChecksHaveUpstreamNames holds that monitoring which asks for single checks of upstream's API server finds
// them, and that they are not passed before the server has started.
func TestHealthChecksHaveUpstreamNames(t *testing.T) {
	s := &Server{}
	all := map[string]bool{}
	for _, c := range healthz.StartHooks() {
		if all[c] {
			t.Errorf("%s is there twice", c)
		}
		all[c] = true
	}
	for _, name := range []string{"poststarthook/rbac/bootstrap-roles", "poststarthook/crd-informer-synced", "autoregister-completion"} {
		if !all[name] {
			t.Errorf("there is no check %s", name)
		}
	}
	if s.started(t.Context()) == nil {
		t.Error("a server that has not started says that it has")
	}
	s.ready.Store(true)
	if err := s.started(t.Context()); err != nil {
		t.Errorf("a server that has started says %v", err)
	}
}
