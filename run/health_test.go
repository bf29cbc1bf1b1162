package run

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/control"
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

// frozenStore is a store whose health check blocks while isFrozen is set.
type frozenStore struct {
	*memory.Store
	isFrozen atomic.Bool
}

func (f *frozenStore) Healthy(ctx context.Context) error {
	if f.isFrozen.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// serverOnExternalEtcd returns a server with an external etcd and only the parts that its health checks need.
func serverOnExternalEtcd(t *testing.T, store Store) *Server {
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

// getHealth returns the answer of a health endpoint, and how long it took.
func getHealth(t *testing.T, s *Server, path string) (code int, text string, took time.Duration) {
	t.Helper()
	began := time.Now()
	w := httptest.NewRecorder()
	(&healthz.Endpoints{Checks: s.checks()}).Handler().ServeHTTP(w,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String(), time.Since(began)
}

// TestHealthWhileStoreIsFrozen checks that /livez and /readyz answer at once while the store blocks, and name it as failed.
func TestHealthWhileStoreIsFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &frozenStore{Store: memory.New(memory.Config{})}
		s := serverOnExternalEtcd(t, store)
		defer s.state.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.watchHealth(ctx)
		for _, isFrozen := range []bool{false, true, false} {
			store.isFrozen.Store(isFrozen)
			time.Sleep(probePause + probeTimeout + time.Millisecond)
			for _, path := range []string{"/livez", "/readyz", "/healthz"} {
				code, text, took := getHealth(t, s, path)
				if (code != http.StatusOK) != isFrozen || isFrozen && !strings.Contains(text, "[-]etcd failed") || took > 0 {
					t.Errorf("frozen %v: %s says %d %q after %v", isFrozen, path, code, text, took)
				}
			}
		}
	})
}

// TestNotReadyWhileWatchesAreStuck checks that the server is not ready while a cache cannot watch the store.
func TestNotReadyWhileWatchesAreStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Bool
		stuck.Store(true)
		store := memory.New(memory.Config{Hook: func(op, _ string) error {
			if op == "watch" && stuck.Load() {
				return errors.New("no route")
			}
			return nil
		}})
		s := serverOnExternalEtcd(t, store)
		defer s.state.Close()
		s.state.Cache(core.ConfigMaps())
		synctest.Wait()
		if _, err := store.Commit(t.Context(), kv.Write{Key: "/registry/others/x", Value: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.watchHealth(ctx)
		for _, isStuck := range []bool{true, false} {
			stuck.Store(isStuck)
			time.Sleep(2 * (probePause + probeTimeout))
			code, text, _ := getHealth(t, s, "/readyz")
			if (code != http.StatusOK) != isStuck || isStuck && !strings.Contains(text, "[-]watches failed") {
				t.Errorf("stuck %v: /readyz says %d %q", isStuck, code, text)
			}
			if code, text, _ := getHealth(t, s, "/livez"); code != http.StatusOK {
				t.Errorf("stuck %v: /livez says %d %q", isStuck, code, text)
			}
		}
	})
}

// TestNotReadyWithoutLeader checks that a server that contends for a Lease is not ready while nobody is known to hold it.
func TestNotReadyWithoutLeader(t *testing.T) {
	s := serverOnExternalEtcd(t, memory.New(memory.Config{}))
	defer s.state.Close()
	if code, text, _ := getHealth(t, s, "/readyz"); code != http.StatusOK {
		t.Fatalf("without an election: /readyz says %d %q", code, text)
	}
	ended, end := context.WithCancel(t.Context())
	end() // nobody is ever elected
	s.queues = control.NewMetrics()
	var wg sync.WaitGroup
	s.lead(ended, &wg, election{lease: "some", work: func(context.Context) {}})
	wg.Wait()
	if code, text, _ := getHealth(t, s, "/readyz"); code == http.StatusOK || !strings.Contains(text, "[-]leader-election failed") {
		t.Errorf("/readyz says %d %q", code, text)
	}
	if code, text, _ := getHealth(t, s, "/livez"); code != http.StatusOK {
		t.Errorf("/livez says %d %q", code, text)
	}
}

// TestHealthChecksHaveUpstreamNames checks that there are health checks with the names of upstream's API server, and that they
// fail until the server has started.
func TestHealthChecksHaveUpstreamNames(t *testing.T) {
	s := &Server{}
	all := map[string]bool{}
	for _, c := range healthz.StartHooks() {
		if all[c] {
			t.Errorf("%s is there twice", c)
		}
		all[c] = true
	}
	for _, name := range []string{"poststarthook/rbac/bootstrap-roles", "poststarthook/crd-informer-synced", "autoregister-completion",
		"poststarthook/start-service-ip-repair-controllers"} {
		if !all[name] {
			t.Errorf("there is no check %s", name)
		}
	}
	s.store = memory.New(memory.Config{})
	for _, c := range s.checks() {
		if all[c.Name] && !c.Live {
			t.Errorf("%s is not a check of /livez", c.Name)
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

// TestCheckLags checks that a cache that is far behind fails the check, with its name and its lag.
func TestCheckLags(t *testing.T) {
	if err := checkLags(map[string]float64{"pods": 0, "jobs.batch": 1.9}); err != nil {
		t.Error(err)
	}
	err := checkLags(map[string]float64{"pods": 0, "secrets": 12.4, "configmaps": 3})
	if want := "caches are behind the store: configmaps by 3 s, secrets by 12 s"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
