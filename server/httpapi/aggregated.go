package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/streaming/pkg/httpstream"

	"proa.dev/kinds/kind"
	"proa.dev/server/apidiscovery"
	"proa.dev/server/apistatus"
	"proa.dev/server/requestflow"
	"proa.dev/server/responsewriter"
)

// Aggregated passes requests on to aggregated API servers, which serve some group versions in place of this one.
type Aggregated interface {
	// Serves says that another server serves a group version.
	Serves(gv schema.GroupVersion) bool
	// Pass sends a request to that server in the name of a user, and its answer to the client.
	Pass(w http.ResponseWriter, req *http.Request, gv schema.GroupVersion, as user.Info)
	// Versions returns the group versions that other servers serve.
	Versions() []apidiscovery.Remote
}

// isAggregated says that another server serves a group version.
func (s *Handler) isAggregated(gv schema.GroupVersion) bool {
	return s.Aggregated != nil && gv.Group != "" && s.Aggregated.Serves(gv)
}

// aggregatedSeatTime is how long a request to an aggregated API server keeps its seat: a slow server must not take the
// seats of all other requests.
const aggregatedSeatTime = time.Second

// serveAggregated authorizes a request for a resource of an aggregated API server and passes it on.
func (s *Handler) serveAggregated(ctx context.Context, w *responsewriter.Writer, req *http.Request, rt route, by *requester) {
	a := rt.attributes(by.Info)
	if req.Method == http.MethodHead { // HEAD needs the right to read
		a.Verb = verbOf(http.MethodGet, rt.name != "", false)
	}
	if err := s.Server.AuthorizeAttributes(ctx, &a, w.Audit); err != nil {
		s.writeError(w, req, err)
		return
	}
	if hasDotSegment(req.URL.Path) {
		s.writeError(w, req, apistatus.BadRequest("the path is not valid: no part of it may be '.' or '..'"))
		return
	}
	leave, err := requestflow.Enter(ctx, &by.flow, 1)
	if err != nil {
		s.writeError(w, req, err)
		return
	}
	w.Seat.Take(leave)
	if rt.isLongRunning(req.URL.Path) || httpstream.IsUpgradeRequest(req) {
		end, err := s.beginStream(by.Info)
		if err != nil {
			s.writeError(w, req, err)
			return
		}
		defer end()
	}
	if rt.isLongRunning(req.URL.Path) {
		w.StartStreaming()
		responsewriter.MarkStreaming(w.ResponseWriter)
	} else {
		t := time.AfterFunc(aggregatedSeatTime, w.Seat.Free)
		defer t.Stop()
	}
	s.Aggregated.Pass(w, req.WithContext(ctx), rt.gvr.GroupVersion(), by.Info)
}

// hasDotSegment says that a path has a part "." or "..". The other server might resolve it to a path other than the one
// that was authorized.
func hasDotSegment(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// remoteVersions returns the group versions of aggregated API servers.
func (s *Handler) remoteVersions() []apidiscovery.Remote {
	if s.Aggregated == nil {
		return nil
	}
	return s.Aggregated.Versions()
}

// groupListDiscovery returns the discovery document at /apis.
func (s *Handler) groupListDiscovery(defs []*kind.Def) *metav1.APIGroupList {
	l := apidiscovery.Groups(defs)
	apidiscovery.AddGroups(l, s.remoteVersions())
	return l
}

// groupDiscovery returns the discovery document of a group; nil when it is not served.
func (s *Handler) groupDiscovery(defs []*kind.Def, name string) *metav1.APIGroup {
	return apidiscovery.AddGroup(apidiscovery.Group(defs, name), name, s.remoteVersions())
}

// aggregatedDiscovery returns the aggregated discovery document of all groups but the core group.
func (s *Handler) aggregatedDiscovery(defs []*kind.Def) *apidiscoveryv2.APIGroupDiscoveryList {
	l := apidiscovery.Aggregated(defs, false)
	apidiscovery.AddAggregated(l, s.remoteVersions())
	return l
}
