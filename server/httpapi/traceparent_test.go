package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

func TestTraceParentNeedsTrustedUser(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		name   string
		groups []string
		values []string
		want   string
	}{
		{"an administrator", []string{"system:authenticated", "system:masters"}, []string{good}, good},
		{"monitoring", []string{"system:monitoring"}, []string{good}, good},
		{"a user", []string{"system:authenticated"}, []string{good}, ""},
		{"a node", []string{"system:nodes", "system:authenticated"}, []string{good}, ""},
		{"a service account", []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}, []string{good}, ""},
		{"a similar group", []string{"system:masters2", "masters", "SYSTEM:MASTERS"}, []string{good}, ""},
		{"an anonymous user", []string{"system:unauthenticated"}, []string{good}, ""},
		{"an administrator with none", []string{"system:masters"}, nil, ""},
		{"an administrator with two", []string{"system:masters"}, []string{good, good}, ""},
		{"an administrator with a wrong one", []string{"system:masters"}, []string{good + "x"}, ""},
		{"an administrator with a megabyte", []string{"system:masters"}, []string{strings.Repeat("0", 1<<20)}, ""},
		{"an administrator who records nothing", []string{"system:masters"}, []string{good[:54] + "0"}, ""},
	} {
		req := &http.Request{Header: http.Header{"Traceparent": c.values, "Tracestate": {strings.Repeat("a=b,", 1<<18)}}}
		if got := traceParentOf(req, &user.DefaultInfo{Name: "x", Groups: c.groups}); got != c.want {
			t.Errorf("%s: the traceparent is %q, want %q", c.name, got, c.want)
		}
	}
	if got := traceParentOf(&http.Request{Header: http.Header{"Traceparent": {good}}}, nil); got != "" {
		t.Errorf("without a user the traceparent is %q", got)
	}
}
