package httpapi

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/fairqueue"
)

// flowOf finds the flow of a request. A long-running request that is no watch belongs to none: it would hold its seat
// for hours.
func (s *Handler) flowOf(rt *route, path string, who user.Info) fairqueue.Flow {
	if rt.resource && rt.verb != "watch" && isLongRunning(rt.sub) {
		return fairqueue.Flow{}
	}
	return s.Server.Classify(&fairqueue.Request{
		User: who, Verb: rt.verb, Path: path, IsResource: rt.resource,
		Group: rt.gvr.Group, Resource: rt.gvr.Resource, Subresource: rt.sub, Namespace: rt.namespace,
	})
}

// isLongRunning says that requests for a subresource may last for as long as the client wants.
func isLongRunning(sub string) bool {
	switch sub {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return false
}

// The headers of priority and fairness in the canonical form of net/http, so that it need not be computed for each
// request.
const (
	levelHeader = "X-Kubernetes-Pf-Prioritylevel-Uid"
	flowHeader  = "X-Kubernetes-Pf-Flowschema-Uid"
)

// setFlowHeaders sets the headers that name the FlowSchema and the priority level of a request.
func setFlowHeaders(h http.Header, f *fairqueue.Flow) {
	if f.LevelUID != "" {
		h[levelHeader] = []string{string(f.LevelUID)}
		h[flowHeader] = []string{string(f.SchemaUID)}
	}
}
