package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
	"proa.dev/server/discovery"
)

// Aggregated leads to the API servers that serve some group versions in place of this one.
type Aggregated interface {
	// Serves says whether another server serves a group version.
	Serves(gv schema.GroupVersion) bool
	// Pass sends a request there, in the name of a user, and the answer back.
	Pass(w http.ResponseWriter, req *http.Request, gv schema.GroupVersion, as user.Info)
	// Versions are the group versions that other servers serve.
	Versions() []discovery.Remote
}

// servedElsewhere says that another server serves a group version.
func (s *Server) servedElsewhere(gv schema.GroupVersion) bool {
	return s.Aggregated != nil && gv.Group != "" && s.Aggregated.Serves(gv)
}

// delegatedSeat is how long a request that another server answers keeps its seat. It waits its turn as others do; a server that is slow must
// not keep the seats of all others.
const delegatedSeat = time.Second

// serveElsewhere passes a request for a resource on to the server that serves it, if its user may make it.
func (s *Server) serveElsewhere(ctx context.Context, w *recorder, req *http.Request, rt route, by *asker) {
	a := authz.Attributes{
		User: by.Info, Verb: rt.verb, Namespace: rt.namespace, IsResource: true,
		Group: rt.gvr.Group, Version: rt.gvr.Version, Resource: rt.gvr.Resource, Subresource: rt.sub, Name: rt.name,
	}
	if req.Method == http.MethodHead { // whoever may read may ask whether there is something to read
		a.Verb = verbOf(http.MethodGet, rt.name != "", false)
	}
	if err := s.allowed(ctx, &a, w.trail); err != nil {
		s.fail(w, req, err)
		return
	}
	if climbs(req.URL.Path) {
		s.fail(w, req, badRequest("the path is not valid: no part of it may be '.' or '..'"))
		return
	}
	leave, err := seated(by.flow.Enter(ctx, 1))
	if err != nil {
		s.fail(w, req, err)
		return
	}
	w.seat.take(leave)
	if rt.lasts(req.URL.Path) {
		w.last()
		markLasting(w.ResponseWriter)
	} else {
		t := time.AfterFunc(delegatedSeat, w.seat.free)
		defer t.Stop()
	}
	s.Aggregated.Pass(w, req.WithContext(ctx), rt.gvr.GroupVersion(), by.Info)
}

// climbs says that a path leads somewhere else for whoever follows its dots. What was authorized is the path as it stands.
func climbs(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// remoteVersions are the group versions of other servers.
func (s *Server) remoteVersions() []discovery.Remote {
	if s.Aggregated == nil {
		return nil
	}
	return s.Aggregated.Versions()
}

// groupList is the document at /apis.
func (s *Server) groupList(defs []*kind.Def) *metav1.APIGroupList {
	l := discovery.Groups(defs)
	discovery.AddGroups(l, s.remoteVersions())
	return l
}

// group is the document of a group; nil when nobody serves it.
func (s *Server) group(defs []*kind.Def, name string) *metav1.APIGroup {
	return discovery.AddGroup(discovery.Group(defs, name), name, s.remoteVersions())
}

// allGroups is the document of all groups but the core.
func (s *Server) allGroups(defs []*kind.Def) *apidiscoveryv2.APIGroupDiscoveryList {
	l := discovery.Aggregated(defs, false)
	discovery.AddAggregated(l, s.remoteVersions())
	return l
}
