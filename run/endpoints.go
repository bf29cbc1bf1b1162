package run

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	apiversion "k8s.io/apimachinery/pkg/version"

	"proa.dev/internal/buildinfo"
	"proa.dev/run/access"
	"proa.dev/run/openapisource"
	"proa.dev/server/apimetrics"
	"proa.dev/server/authn"
	"proa.dev/server/healthz"
	"proa.dev/server/httpapi"
	"proa.dev/server/openapi"
	"proa.dev/server/peerrecords"
	"proa.dev/trace"
)

// Version returns the answer of /version. Its GitVersion is that of the Kubernetes API that proa serves; the rest is the
// build of this program.
func Version() *apiversion.Info {
	build := buildinfo.Read()
	return &apiversion.Info{
		Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37", MinCompatibilityMajor: "1", MinCompatibilityMinor: "36",
		GitVersion: "v1.37.1+proa", GitCommit: build.Commit, GitTreeState: build.TreeState(), BuildDate: build.Date,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// errStarting is the reason of /readyz before the initial objects exist.
var errStarting = errors.New("the server is still starting")

// endpoints returns the handler of the paths that are not resources.
func (s *Server) endpoints(auth access.Authenticator, counts http.Handler) http.Handler {
	described := openapi.Options{Resources: openapisource.Resources(s.builtIn, trace.Group), Groups: s.describedGroups(), Version: "1.37"}
	docs := openapi.New(described).Handler(s.log)
	health := apimetrics.NewHealth()
	e := &healthz.Endpoints{
		Version: Version(), State: s.state, Remote: s.aggregator.Versions,
		Checks: s.checks(), Observe: health.Observe,
		Others: map[string]http.Handler{
			"/metrics": counts, "/metrics/slis": health.Handler(),
			FailingPath: s.serveFailing(s.checks()), peerrecords.Path: s.peers,
			"/openapi/v2": docs, "/openapi/v3": docs, "/openapi/v3/": docs,
			authn.OpenIDConfigPath: http.HandlerFunc(auth.ServeOpenIDConfig),
			authn.JWKSPath:         http.HandlerFunc(auth.ServeJWKS),
		},
	}
	return e.Handler()
}

// metrics returns the metrics of the API server.
func (s *Server) metrics() *apimetrics.Metrics {
	v := Version()
	return apimetrics.New(apimetrics.Gauges{
		InFlight: func() (int64, int64) { return s.api.InFlight() },
		Memory:   func() (int64, int64, int64) { return s.api.RequestMemory() },
		Objects:  s.state.Counts, Unreadable: s.state.Unreadable, CacheLag: s.state.CacheLags,
		Version: v.GitVersion, Major: v.Major, Minor: v.Minor,
		StoreSize: func() float64 {
			ctx, stop := context.WithTimeout(context.Background(), time.Second)
			defer stop()
			n, err := s.store.Size(ctx)
			if err != nil {
				return 0
			}
			return float64(n)
		},
	})
}

// requestMetrics converts the observation of a request for the metrics.
func requestMetrics(o httpapi.Observation) apimetrics.Request {
	return apimetrics.Request{
		Verb: o.Verb, Group: o.Group, Version: o.Version, Resource: o.Resource, Subresource: o.Sub, Scope: o.Scope,
		DryRun: o.DryRun, Code: o.Code, Bytes: o.Bytes, Took: o.Took, Terminated: o.Terminated,
	}
}
