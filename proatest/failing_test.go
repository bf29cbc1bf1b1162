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
	"proa.dev/kinds/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// Status must know of a loop that keeps failing and of one that cannot run; a cluster in which all is well has none.
func TestServerKnowsLoopsThatFail(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		loops := func(c *run.Config) {
			c.Loops = func(all []control.Controller) []control.Controller {
				return append(all, control.Controller{
					Name: "broken", For: gr.Namespaces, Reconcile: func(_ context.Context, _ *control.Cluster, k control.Key) (time.Duration, error) {
						if k.Name == "default" {
							return 0, errors.New("it does not work")
						}
						return 0, nil
					},
				}, control.Controller{Name: "blind", For: schema.GroupResource{Resource: "nothings"}})
			}
		}
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), loops)
		defer c.Stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		got := map[string]string{}
		for _, f := range c.Server.Failing(t.Context(), nil) {
			got[f.Part] = f.Error
		}
		if got["controller broken, about default"] != "it does not work" || got["blind"] == "" || len(got) != 2 {
			t.Errorf("failing are %q, want the two loops", got)
		}
	})
}

// What fails is told to administrators only: the reasons may name objects.
func TestFailingPartsAreForAdministrators(t *testing.T) {
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
		t.Errorf("a stranger gets %d %s", code, body)
	}
}
