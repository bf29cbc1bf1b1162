package httpapi

import (
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/deletion"
	"proa.dev/server/negotiate"
	"proa.dev/server/state"
)

// podHandler returns a handler without a store, and the descriptor of Pods.
func podHandler(t testing.TB) (*Handler, *kind.Def) {
	t.Helper()
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(t.Context(), codec.New(scheme), nil, kinds.All(), slog.New(slog.DiscardHandler))
	h := New(Config{Server: server.New(server.Config{State: st, Log: slog.New(slog.DiscardHandler)})})
	return h, st.Def(runtimeschema.GroupResource{Resource: "pods"})
}

func FuzzRoute(f *testing.F) {
	for _, p := range []string{"/api/v1/pods", "/apis/apps/v1/namespaces/x/deployments/y/scale", "/api/v1/namespaces/x/status",
		"/api/v1/watch/namespaces/a/pods", "/api/v1/namespaces", "///", "/api/v1/"} {
		f.Add("GET", p)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		r := routeOf(method, path)
		if !r.resource {
			return
		}
		if strings.ContainsRune(r.name, '/') || strings.ContainsRune(r.namespace, '/') {
			t.Errorf("a name with a slash: %+v", r)
		}
		r.hasValidNames()
	})
}

func FuzzSelectors(f *testing.F) {
	f.Add("a=b,c!=d,e in (f,g),!h", "metadata.name=x,status.phase!=Running")
	f.Add("a notin (", "spec.nodeName==")
	_, pods := podHandler(f)
	pod := pods.New()
	pod.SetLabels(map[string]string{"a": "b", "e": "f"})
	f.Fuzz(func(_ *testing.T, label, field string) {
		r := &server.Request{Verb: "list", Def: pods}
		if parseOptions(r, url.Values{"labelSelector": {label}, "fieldSelector": {field}}, false) != nil {
			return
		}
		if keep := r.Options.List.Filter(pods); keep != nil {
			keep(pod)
		}
	})
}

// FuzzDeleteOptions checks that the options of a deletion are either refused or can be acted on.
func FuzzDeleteOptions(f *testing.F) {
	f.Add("application/json", []byte(`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":-1,"propagationPolicy":"Orphan","dryRun":["All"]}`), "")
	f.Add("application/yaml", []byte("preconditions: {uid: x, resourceVersion: '1'}"), "")
	f.Add("application/vnd.kubernetes.protobuf", []byte("k8s\x00\n"), "")
	f.Add("", []byte(nil), "gracePeriodSeconds=5&dryRun=All&propagationPolicy=Foreground")
	h, pods := podHandler(f)
	f.Fuzz(func(t *testing.T, contentType string, body []byte, query string) {
		q, _ := url.ParseQuery(query) // only the part that could be decoded
		r := &server.Request{Verb: "delete", Def: pods, Body: body}
		if h.readDeleteOptions(r, q, contentType) != nil {
			return
		}
		o := r.Options.Delete
		if o == nil || r.Options.DryRun != (len(o.DryRun) > 0) {
			t.Fatalf("%+v was read", r.Options)
		}
		pod := &corev1.Pod{}
		if deletion.Begin(pods, pod, o, time.Unix(0, 0)); pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds < 0 {
			t.Errorf("a grace of %d seconds", *pod.DeletionGracePeriodSeconds)
		}
	})
}

func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	f.Add("application/vnd.kubernetes.protobuf, */*")
	f.Add(";;;,=,application/*;as")
	f.Fuzz(func(_ *testing.T, accept string) {
		req := httptest.NewRequest("GET", "/api/v1/pods", nil)
		req.Header.Set("Accept", accept)
		_, _ = negotiate.Format(req, true, false, false)
		wantsAggregated(req)
	})
}
