package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestRequestClassification checks the response headers with the FlowSchema and PriorityLevelConfiguration of a request.
func TestRequestClassification(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	where := func(w *httpClient, method, path, body string) string {
		t.Helper()
		_, _, h := w.doWithHeader(method, path, body)
		schema, level := "none", "none"
		if uid := h.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); uid != "" {
			schema = nameOf(t, c, uid)
		}
		if uid := h.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID); uid != "" {
			level = nameOf(t, c, uid)
		}
		return schema + " " + level
	}
	admin, alice := newHTTPClient(t, c), newHTTPClient(t, c, impersonate("alice"))
	for _, test := range []struct {
		who          *httpClient
		method, path string
		want         string
	}{
		{admin, http.MethodGet, "/api/v1/namespaces/default", "exempt exempt"},
		{admin, http.MethodGet, "/api/v1/namespaces/default/pods/none", "exempt exempt"},
		{alice, http.MethodGet, "/api/v1/namespaces/default/pods", "global-default global-default"},
		// requests that are refused are classified, too
		{alice, http.MethodGet, "/readyz", "probes exempt"},
		{alice, http.MethodGet, "/version", "global-default global-default"},
		{alice, http.MethodGet, "/apis", "global-default global-default"},
		{newHTTPClient(t, c, impersonate("system:node:a", "system:nodes")), http.MethodGet, "/api/v1/nodes/a",
			"system-node-high node-high"},
		{newHTTPClient(t, c, impersonate("system:serviceaccount:ns:x")), http.MethodGet, "/api/v1/pods", "service-accounts workload-low"},
		{alice, http.MethodGet, "/api/v1/namespaces/default/pods/x/log", "none none"},
	} {
		if got := where(test.who, test.method, test.path, ""); got != test.want {
			t.Errorf("%s %s is in %s, want %s", test.method, test.path, got, test.want)
		}
	}

	// A new FlowSchema is used as soon as it exists.
	schema := `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"mine"},"spec":{"matchingPrecedence":100,
		"priorityLevelConfiguration":{"name":"workload-low"},"rules":[{"subjects":[{"kind":"User","user":{"name":"alice"}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`
	admin.must(http.StatusCreated, http.MethodPost, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", schema)
	admin.must(http.StatusOK, http.MethodGet, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/mine", "") // the cache has it by now
	if got := where(alice, http.MethodGet, "/api/v1/namespaces/default/pods", ""); got != "mine workload-low" {
		t.Errorf("with a schema of its own it is in %s", got)
	}
	for _, want := range []string{
		`apiserver_flowcontrol_dispatched_requests_total{flow_schema="exempt",priority_level="exempt"}`,
		`apiserver_flowcontrol_nominal_limit_seats{priority_level="workload-low"} 245`,
		`apiserver_flowcontrol_current_executing_requests{flow_schema="mine",priority_level="workload-low"} 0`,
	} {
		awaitMetric(admin, want)
	}
}

// awaitMetric waits until /metrics has a text: a client may get the response to a request before its seat is given back.
func awaitMetric(w *httpClient, want string) {
	w.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, metrics := w.do(http.MethodGet, "/metrics", ""); strings.Contains(metrics, want) {
			return
		}
		if time.Now().After(deadline) {
			w.Errorf("the metrics have no %s", want)
			return
		}
	}
}

// nameOf returns the name of the FlowSchema or PriorityLevelConfiguration with a UID.
func nameOf(t *testing.T, c *proatest.Cluster, uid string) string {
	t.Helper()
	for _, on := range []string{"flowschemas", "prioritylevelconfigurations"} {
		resource := gr.FlowSchemas
		resource.Resource = on
		view, err := c.Client.View(t.Context(), resource)
		if err != nil {
			t.Fatal(err)
		}
		if err := view.Reach(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for o := range view.List("") {
			if string(o.GetUID()) == uid {
				return o.GetName()
			}
		}
	}
	return uid
}

// TestDisabledFeatures checks that watch lists and compressed responses can be switched off.
func TestDisabledFeatures(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), func(c *run.Config) {
		c.Features = map[string]bool{"AllBeta": false}
	})
	admin := newHTTPClient(t, c)
	st := admin.status(http.StatusUnprocessableEntity, http.MethodGet, "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "")
	if !strings.Contains(st.Message, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled") {
		t.Errorf("got %s", st.Message)
	}
	for range 40 {
		admin.must(http.StatusCreated, http.MethodPost, "/api/v1/namespaces/default/configmaps",
			`{"metadata":{"generateName":"x"},"data":{"a":"`+strings.Repeat("long ", 1000)+`"}}`)
	}
	_, _, h := admin.doWithHeader(http.MethodGet, "/api/v1/configmaps", "", "Accept-Encoding: gzip")
	if got := h.Get("Content-Encoding"); got != "" {
		t.Errorf("the answer is encoded as %s", got)
	}
}
