package gateway

import (
	"errors"
	"log/slog"
	"net"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gw "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/gatewayplan"
	"proa.dev/network/nettest"
	"proa.dev/network/proxysync"
)

// TestProgrammingIsRecorded checks that a Gateway and a route have a record when the proxy serves them. It stays open while the Gateway
// has no port, and those of other classes and routes that no Gateway takes have none, also if a route of another kind has the same name.
func TestProgrammingIsRecorded(t *testing.T) {
	records, isTaken := hop.NewRecorder(100), true
	s := &server{
		Config: Config{NodeName: "here", Log: slog.New(slog.DiscardHandler), Listen: func(string, string) (net.Listener, error) {
			if isTaken {
				return nil, errors.New("too many open files")
			}
			return net.Listen("tcp", "127.0.0.1:0")
		}},
		custom: map[string]client.View{}, builtin: map[schema.GroupResource]client.View{}, changes: proxysync.NewCollector(),
		publish: wait.NewSignal(), sockets: map[socketKey]*socket{}, records: proxysync.NewProgramRecorder(records.Update, "here"),
	}
	views := map[string]*nettest.View{}
	for _, name := range []string{classes, gateways, httpRoutes, grpcRoutes, grants} {
		views[name] = nettest.NewView()
		s.custom[name] = views[name]
	}
	for _, on := range builtins() {
		s.builtin[on] = nettest.NewView()
	}
	s.pools = proxysync.NewPools(s.builtin[gr.Services], s.builtin[gr.EndpointSlices])
	t.Cleanup(s.close)
	rev := int64(0)
	put := func(on, kind, name, spec string) {
		rev++
		o := &unstructured.Unstructured{Object: map[string]any{}}
		if err := yaml.Unmarshal([]byte("spec: "+spec), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetAPIVersion(gw.GroupVersion.String())
		o.SetKind(kind)
		o.SetName(name)
		o.SetUID(types.UID(kind + " " + name))
		o.SetResourceVersion("1")
		if kind != "GatewayClass" {
			o.SetNamespace("default")
		}
		views[on].Put(o)
		s.records.Note(resource(on), client.Event{Object: o, Rev: rev})
		s.changes.NoteAll()
	}
	of := func(name string) []hop.Record {
		return records.Select(func(r *hop.Record) bool { return r.Name == name })
	}
	put(classes, "GatewayClass", "ours", `{controllerName: `+gatewayplan.Controller+`}`)
	put(gateways, "Gateway", "web", `{gatewayClassName: ours, listeners: [{name: http, port: 80, protocol: HTTP}]}`)
	put(gateways, "Gateway", "others", `{gatewayClassName: theirs, listeners: [{name: http, port: 80, protocol: HTTP}]}`)
	s.sync(t.Context())
	if got := of("web"); len(got) != 1 || !got[0].Open || got[0].Error != "port 80 cannot be served: too many open files" {
		t.Fatalf("%+v", got)
	}
	isTaken = false
	put(httpRoutes, "HTTPRoute", "attached", `{parentRefs: [{name: web}], rules: [{backendRefs: [{name: x, port: 80}]}]}`)
	put(httpRoutes, "HTTPRoute", "lost", `{parentRefs: [{name: others}], rules: [{backendRefs: [{name: x, port: 80}]}]}`)
	put(grpcRoutes, "GRPCRoute", "attached", `{parentRefs: [{name: others}], rules: [{backendRefs: [{name: x, port: 80}]}]}`)
	s.sync(t.Context())
	for _, name := range []string{"web", "attached"} {
		if got := of(name); len(got) != 1 || got[0].Resource == grpcRoutes || got[0].Open || got[0].Error != "" ||
			got[0].Verb != hop.Program || got[0].Group != gw.GroupName || got[0].User != "system:node:here" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := append(of("others"), of("lost")...); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}
