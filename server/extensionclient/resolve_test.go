package extensionclient

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// objects holds the objects of one namespace, by resource and name.
type objects map[string]kind.Object

func (o objects) Get(_ context.Context, gr schema.GroupResource, _, name string) (kind.Object, error) {
	if found := o[gr.Resource+"/"+name]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(gr, name)
}

func (o objects) List(_ context.Context, gr schema.GroupResource, _ string) (iter.Seq[kind.Object], error) {
	var out []kind.Object
	for name, obj := range o {
		if strings.HasPrefix(name, gr.Resource+"/") {
			out = append(out, obj)
		}
	}
	return slices.Values(out), nil
}

func TestResolve(t *testing.T) {
	service := func(serviceType corev1.ServiceType) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{
			Type: serviceType, ExternalName: "else.where", Ports: []corev1.ServicePort{{Name: "web", Port: 443}, {Name: "other", Port: 80}},
		}}
	}
	slice := func(ready bool, address, pod string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
			Ports:      []discoveryv1.EndpointPort{{Name: new("other"), Port: new(int32(1))}, {Name: new("web"), Port: new(int32(8443))}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}
		if pod != "" {
			s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod}
		}
		return s
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}
	for name, test := range map[string]struct {
		objects objects
		want    string
	}{
		"nothing":      {objects{}, `services "s" not found`},
		"another name": {objects{"services/s": service(corev1.ServiceTypeExternalName)}, "[{else.where:443 }]"},
		"no endpoints": {objects{"services/s": service("ClusterIP")}, `no endpoints available for service "s"`},
		"no port":      {objects{"services/s": &corev1.Service{}}, `no service port 443 found for service "s"`},
		"a Pod": {objects{"services/s": service("ClusterIP"), "pods/p": pod,
			"endpointslices/a": slice(true, "10.0.0.1", "p")}, "[{10.0.0.1:8443 n}]"},
		"not ready": {objects{"services/s": service("ClusterIP"), "pods/p": pod,
			"endpointslices/a": slice(false, "10.0.0.1", "p")}, `no endpoints available for service "s"`},
		"no Pod": {objects{"services/s": service("ClusterIP"), "endpointslices/a": slice(true, "10.0.0.1", "")},
			"[{10.0.0.1:8443 }]"},
		"the Pod has another address": {objects{"services/s": service("ClusterIP"), "pods/p": pod,
			"endpointslices/a": slice(true, "10.0.0.2", "p")}, "[{10.0.0.2:8443 }]"},
		"the server itself": {objects{"services/s": service("ClusterIP"), "endpointslices/a": slice(true, "127.0.0.1", "")},
			`no endpoints available for service "s"`},
		"the metadata address of clouds": {objects{"services/s": service("ClusterIP"), "endpointslices/a": slice(true, "169.254.169.254",
			"")},
			`no endpoints available for service "s"`},
	} {
		got, err := Resolver(test.objects)(t.Context(), Service{Namespace: "ns", Name: "s", Port: 443})
		if text := fmt.Sprint(got); err == nil && text != test.want || err != nil && err.Error() != test.want {
			t.Errorf("%s: got %v, %v, want %s", name, got, err, test.want)
		}
	}
}
