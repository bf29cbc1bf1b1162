package availablecondition

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestEndpointCondition(t *testing.T) {
	ref := &apiregistrationv1.ServiceReference{Namespace: "wardle", Name: "api", Port: new(int32(8443))}
	service := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP,
		Ports: []corev1.ServicePort{{Name: "https", Port: 8443}}}}
	slice := func(port string, ready bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			Ports: []discoveryv1.EndpointPort{{Name: &port, Port: new(int32(1))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}
	}
	externalName := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "api.example.com"}}
	otherPort := service.DeepCopy()
	otherPort.Spec.Ports[0].Port = 443
	for _, c := range []struct {
		service         *corev1.Service
		slices          []*discoveryv1.EndpointSlice
		reason, message string
	}{
		{nil, nil, "ServiceNotFound", `service/api in "wardle" is not present`},
		{externalName, nil, "Passed", "all checks passed"},
		{otherPort, nil, "ServicePortError", `service/api in "wardle" is not listening on port 8443`},
		{service, nil, "EndpointsNotFound", `cannot find endpointslices for service/api in "wardle"`},
		{service, []*discoveryv1.EndpointSlice{slice("https", false)}, "MissingEndpoints", `endpointslices for service/api in "wardle" have no addresses with port name "https"`},
		{service, []*discoveryv1.EndpointSlice{slice("http", true)}, "MissingEndpoints", `endpointslices for service/api in "wardle" have no addresses with port name "https"`},
		{service, []*discoveryv1.EndpointSlice{slice("https", false), slice("https", true)}, "Passed", "all checks passed"},
	} {
		got := endpointCondition(ref, c.service, c.slices)
		if got.Reason != c.reason || got.Message != c.message || (got.Status == apiregistrationv1.ConditionTrue) != (c.reason == "Passed") {
			t.Errorf("got %+v, want %s: %s", got, c.reason, c.message)
		}
	}
}

func TestNextCheck(t *testing.T) {
	since := time.Unix(1000, 0)
	unavailable := []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(since)}}
	for after, want := range map[time.Duration]time.Duration{0: time.Second, 7 * time.Second: 7 * time.Second, time.Hour: recheck} {
		if got := nextCheck(unavailable, since.Add(after)); got != want {
			t.Errorf("after %v the next check is in %v, want %v", after, got, want)
		}
	}
	becameAvailable, changed := withCondition(unavailable, available(), since.Add(time.Minute))
	if got := nextCheck(becameAvailable, since.Add(time.Hour)); !changed || got != recheck ||
		becameAvailable[0].LastTransitionTime.Time != since.Add(time.Minute) {
		t.Errorf("got %v, %+v", got, becameAvailable)
	}
	unchanged, changed := withCondition(becameAvailable, available(), since.Add(time.Hour))
	if changed || unchanged[0] != becameAvailable[0] {
		t.Errorf("got %+v, changed %t", unchanged, changed)
	}
}
