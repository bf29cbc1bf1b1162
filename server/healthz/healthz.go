// Package healthz serves what is not a resource: the health endpoints, the version, and the list of paths at the root.
package healthz

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"

	"proa.dev/server/apidiscovery"
	"proa.dev/server/responsewriter"
	"proa.dev/server/state"
)

// Check is a health check of a part of the server.
type Check struct {
	Name string
	// Live says that the check belongs to /livez: when it fails, the process should be restarted.
	Live  bool
	Probe func(ctx context.Context) error
}

// Endpoints are the paths that are not resources.
type Endpoints struct {
	Version *apiversion.Info
	Checks  []Check
	// State has the API groups that the root document lists; it may be nil.
	State *state.State
	// Remote returns the group versions of aggregated API servers; it may be nil.
	Remote func() []apidiscovery.Remote
	// Observe is called with the result of each check; it may be nil.
	Observe func(check, endpoint string, ok bool)
	// Others are further handlers by path; a path that ends in a slash covers what is below it.
	Others map[string]http.Handler
}

// Handler returns the handler of the endpoints.
func (e *Endpoints) Handler() http.Handler {
	mux := http.NewServeMux()
	paths := []string{"/api", "/api/v1", "/apis", "/apis/", "/healthz", "/livez", "/readyz", "/version"}
	version := func(w http.ResponseWriter, req *http.Request) {
		body, err := json.MarshalIndent(e.Version, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		responsewriter.Send(w, req, http.StatusOK, "application/json", body)
	}
	mux.HandleFunc("/version", version)
	mux.HandleFunc("/version/{$}", version)
	for path, all := range map[string]func(Check) bool{
		"/healthz": func(Check) bool { return true }, "/readyz": func(Check) bool { return true },
		"/livez": func(c Check) bool { return c.Live },
	} {
		var checks []Check
		for _, c := range e.Checks {
			if all(c) {
				checks = append(checks, c)
				paths = append(paths, path+"/"+c.Name)
			}
		}
		h := e.health(strings.TrimPrefix(path, "/"), checks)
		mux.Handle(path, h)
		mux.Handle(path+"/{check}", h)
		mux.Handle(path+"/poststarthook/{check...}", h)
	}
	for path, h := range e.Others {
		mux.Handle(path, h)
		paths = append(paths, path)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/" && req.URL.Path != "/index.html" {
			http.Error(w, "404 page not found", http.StatusNotFound)
			return
		}
		all := slices.Concat(paths, e.groups())
		slices.Sort(all)
		body, err := json.MarshalIndent(map[string][]string{"paths": all}, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		responsewriter.Send(w, req, http.StatusOK, "application/json", body)
	})
	return mux
}

// groups returns the paths of the API groups that are served now, and of their versions.
func (e *Endpoints) groups() (paths []string) {
	if e.State == nil {
		return nil
	}
	l := apidiscovery.Groups(e.State.Defs())
	if e.Remote != nil {
		apidiscovery.AddGroups(l, e.Remote())
	}
	for _, g := range l.Groups {
		paths = append(paths, "/apis/"+g.Name)
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	return paths
}

// reasonsKey is the key of the context value of WithReasons.
type reasonsKey struct{}

// WithReasons returns a context with which the health endpoints say why a check has failed. Only requests of
// administrators have it.
func WithReasons(ctx context.Context) context.Context {
	return context.WithValue(ctx, reasonsKey{}, true)
}

// reason returns why a check has failed, in one line, or that the reason is withheld.
func reason(ctx context.Context, err error) string {
	if ctx.Value(reasonsKey{}) == nil {
		return "reason withheld"
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

// health returns the handler of one of the three health endpoints and of its single checks.
func (e *Endpoints) health(name string, checks []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		only := strings.TrimPrefix(strings.TrimPrefix(req.URL.Path, "/"+name), "/")
		var text bytes.Buffer
		failed := false
		found := only == ""
		exclude := req.URL.Query()["exclude"]
		for _, c := range checks {
			if only != "" && c.Name != only {
				continue
			}
			found = true
			if slices.Contains(exclude, c.Name) {
				fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.Name)
				continue
			}
			err := c.Probe(req.Context())
			if e.Observe != nil {
				e.Observe(c.Name, name, err == nil)
			}
			if err != nil {
				failed = true
				fmt.Fprintf(&text, "[-]%s failed: %s\n", c.Name, reason(req.Context(), err))
				continue
			}
			fmt.Fprintf(&text, "[+]%s ok\n", c.Name)
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		switch {
		case !found:
			http.Error(w, "404 page not found", http.StatusNotFound)
		case failed:
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "%s%s check failed\n", text.String(), name)
		case only == "" && req.URL.Query().Has("verbose"):
			fmt.Fprintf(w, "%s%s check passed\n", text.String(), name)
		default:
			fmt.Fprint(w, "ok")
		}
	})
}
