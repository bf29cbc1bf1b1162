package core

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/core/nodekind"
	"proa.dev/kinds/core/podkind"
	"proa.dev/kinds/core/servicekind"
	"proa.dev/kinds/kind"
)

// fakeServer is a server with a few objects, found by name and by the label "in" with their resource.
type fakeServer struct {
	kind.Server
	objects []kind.Object
}

func (s fakeServer) Get(_ context.Context, gr schema.GroupResource, _, name string) (kind.Object, error) {
	for _, o := range s.objects {
		if o.GetName() == name && o.GetLabels()["in"] == gr.Resource {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(gr, name)
}

func (s fakeServer) List(_ context.Context, gr schema.GroupResource, _ string) (iter.Seq[kind.Object], error) {
	return func(yield func(kind.Object) bool) {
		for _, o := range s.objects {
			if o.GetLabels()["in"] == gr.Resource && !yield(o) {
				return
			}
		}
	}, nil
}

func metaIn(resource, name string, more ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"in": resource}}
	if len(more) > 0 {
		m.Labels[discoveryv1.LabelServiceName] = more[0]
	}
	return m
}

// newStreamServer returns a small cluster: pods on a node, on a deleted one and on none, and services with and
// without endpoints.
func newStreamServer() fakeServer {
	one := &corev1.Pod{ObjectMeta: metaIn("pods", "one"),
		Spec: corev1.PodSpec{NodeName: "n",
			Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}}
	one.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
	two := &corev1.Pod{ObjectMeta: metaIn("pods", "two"),
		Spec: corev1.PodSpec{NodeName: "lost", Containers: []corev1.Container{{Name: "a"}, {Name: "b"}},
			InitContainers:      []corev1.Container{{Name: "i"}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}}}
	two.Status.PodIPs = []corev1.PodIP{{IP: "169.254.0.1"}}
	none := &corev1.Pod{ObjectMeta: metaIn("pods", "none"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	six := &corev1.Pod{ObjectMeta: metaIn("pods", "six"), Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}}}
	six.Status.PodIPs = []corev1.PodIP{{IP: "fd00::1"}}
	web := &corev1.Service{ObjectMeta: metaIn("services", "web"),
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 8080}}}}
	slice := func(service, pod, address string, ready bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metaIn("endpointslices", service+"-"+address, service),
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				TargetRef: &corev1.ObjectReference{Namespace: "ns", Name: pod}}}}
	}
	return fakeServer{objects: []kind.Object{one, two, none, six, &corev1.Node{ObjectMeta: metaIn("nodes", "n")}, web,
		slice("web", "one", "10.0.0.2", true), slice("web", "one", "10.0.0.1", true), slice("web", "two", "169.254.0.1", true),
		slice("asleep", "one", "10.0.0.1", false)}}
}

func TestStreams(t *testing.T) {
	pods, nodes, services := podkind.Pods(), nodekind.Nodes(nodekind.Hooks{}), servicekind.Services()
	for _, test := range []struct {
		def  *kind.Def
		path string // NAME SUBRESOURCE[/PATH][?QUERY]
		want string
	}{
		{pods, "one log", "node n /containerLogs/ns/one/c text"},
		{pods, "one log?container=c&follow=true&tailLines=3", "node n /containerLogs/ns/one/c?follow=true&tailLines=3 text now"},
		{pods, "one log?container=x", "container x is not valid for pod one"},
		{pods, "one log?tailLines=-1", `PodLogOptions "one" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0`},
		{pods, "one log?stream=Stdout", `PodLogOptions "one" is invalid: stream: Forbidden: may not be specified`},
		{pods, "one log?sinceSeconds=x", `strconv.ParseInt: parsing "x": invalid syntax`},
		{pods, "two log", "a container name must be specified for pod two, choose one of: [i a b e]"},
		{pods, "none log", "nothing"},
		{pods, "gone log", `pods "gone" not found`},
		{pods, "one exec?command=ls&command=-l&stdin=true&stdout=true&tty=true",
			"node n /exec/ns/one/c?command=ls&command=-l&input=1&output=1&tty=1"},
		{pods, "two exec?container=e", `pods "lost" not found`},
		{pods, "none exec", "pod none does not have a host assigned"},
		{pods, "one attach?stdout=true", "node n /attach/ns/one/c?output=1"},
		{pods, "one portforward?ports=80&ports=81", "node n /portForward/ns/one?port=80%2C81"},
		{pods, "one portforward?ports=70000", `cannot convert to []int32: strconv.ParseUint: parsing "70000": value out of range`},
		{pods, "one proxy/a/b", "://10.0.0.1:80 a/b proxy"},
		{pods, "https:one:443 proxy", "https://10.0.0.1:443  proxy"},
		{pods, "six proxy", "://[fd00::1]  proxy"},
		{pods, "ftp:one:21 proxy", `invalid pod request "ftp:one:21"`},
		{pods, "two proxy", "address not allowed"},
		{pods, "none proxy", "address not allowed"},
		{nodes, "n proxy/pods", "node n /pods proxy"},
		{nodes, "n proxy/exec/ns/p/c", "node n /exec/ns/p/c proxy needs create"},
		{nodes, "n proxy//run/ns/p/c", "node n /run/ns/p/c proxy needs create"},
		{nodes, "http:n:9100 proxy/metrics", "node n http 9100 /metrics proxy"},
		{nodes, "x proxy", `nodes "x" not found`},
		{services, "web:http proxy/x", "://10.0.0.1:80 x proxy"},
		{services, "https:web:8080 proxy", "https://10.0.0.1:80  proxy"},
		{services, "web:81 proxy", `no service port 81 found for service "web"`},
		{services, "web proxy", `no endpoints available for service "web"`},
		{services, "asleep:http proxy", `no endpoints available for service "asleep"`},
		{services, "none:http proxy", `no endpoints available for service "none"`},
	} {
		u, err := url.Parse("/" + test.path)
		if err != nil {
			t.Fatal(err)
		}
		c := &kind.Connection{Namespace: "ns", Query: u.Query()}
		var rest string
		if _, err := fmt.Sscanf(u.Path, "/%s %s", &c.Name, &rest); err != nil {
			t.Fatal(err)
		}
		sub := rest
		for i := range rest {
			if rest[i] == '/' {
				sub, c.Path = rest[:i], rest[i+1:]
				break
			}
		}
		target, err := test.def.Sub(sub).Connect(t.Context(), newStreamServer(), c)
		got := describe(target)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.path, got, test.want)
		}
	}
}

func describe(t *kind.Target) string {
	if t == nil {
		return "nothing"
	}
	out := t.Scheme + "://" + t.Host
	if t.Node != nil {
		if out = "node " + t.Node.Name; t.Port != "" {
			out += " " + t.Scheme + " " + t.Port
		}
	}
	out += " " + t.Path
	if len(t.Query) > 0 {
		out += "?" + t.Query.Encode()
	}
	out += map[kind.Shape]string{kind.Text: " text", kind.Proxy: " proxy"}[t.Shape]
	if t.RequiredVerb != "" {
		out += " needs " + t.RequiredVerb
	}
	if t.Flush {
		out += " now"
	}
	return out
}
