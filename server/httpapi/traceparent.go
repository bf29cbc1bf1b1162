package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
)

// traceParentOf returns the traceparent of a request, if its user may say of which trace his requests are a part: one in the group
// system:masters or system:monitoring. From everybody else it is ignored, and so is one that is not valid or whose own trace is not
// recorded. The header tracestate is never read.
func traceParentOf(req *http.Request, who user.Info) string {
	values := req.Header["Traceparent"]
	if len(values) != 1 || !mayJoinTraces(who) {
		return ""
	}
	if p, ok := hop.ParseTraceParent(values[0]); !ok || !p.Sampled {
		return ""
	}
	return strings.Clone(values[0])
}

// mayJoinTraces reports whether a user is trusted to add spans to a trace of his choice.
func mayJoinTraces(who user.Info) bool {
	return who != nil && slices.ContainsFunc(who.GetGroups(), func(group string) bool {
		return group == user.SystemPrivilegedGroup || group == user.MonitoringGroup
	})
}
