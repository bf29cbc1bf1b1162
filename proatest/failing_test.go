package proatest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestServerListsFailingControllers checks that the server lists a controller that keeps failing and one that cannot run, and that
// the list of a healthy cluster is empty.
func TestServerListsFailingControllers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		failing := func(c *run.Config) {
			c.FilterControllers = func(all []control.Controller) []control.Controller {
				return append(all, control.Controller{
					Name: "broken", For: gr.Namespaces,
					Reconcile: func(_ context.Context, _ *control.Cluster, k control.Key) (time.Duration, error) {
						if k.Name == "default" {
							return 0, errors.New("it does not work")
						}
						return 0, nil
					},
				}, control.Controller{Name: "blind", For: schema.GroupResource{Resource: "nothings"}})
			}
		}
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), failing)
		defer c.Stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		got := map[string]string{}
		for _, f := range c.Server.Failing(t.Context(), nil) {
			got[f.Part] = f.Error
		}
		if got["controller broken, about default"] != "it does not work" || got["blind"] == "" || len(got) != 2 {
			t.Errorf("failing are %q, want the two controllers", got)
		}
	})
}

// TestOnlyAdministratorsSeeFailures checks that failures are shown to administrators only, because their reasons may name
// objects.
func TestOnlyAdministratorsSeeFailures(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	ask := func(config *rest.Config) (int, string) {
		t.Helper()
		h, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.Get(config.Host + run.FailingPath)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.TrimSpace(string(body))
	}
	if code, body := ask(c.Config); code != http.StatusOK || body != "[]" {
		t.Errorf("an administrator gets %d %s, want that nothing fails", code, body)
	}
	if code, body := ask(rest.AnonymousClientConfig(c.Config)); code != http.StatusForbidden && code != http.StatusUnauthorized {
		t.Errorf("an unauthenticated client gets %d %s", code, body)
	}
}
