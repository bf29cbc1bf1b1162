package availablecondition

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestReachable(t *testing.T) {
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
	elsewhere := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "api.example.com"}}
	other := service.DeepCopy()
	other.Spec.Ports[0].Port = 443
	for _, c := range []struct {
		service         *corev1.Service
		behind          []*discoveryv1.EndpointSlice
		reason, message string
	}{
		{nil, nil, "ServiceNotFound", `service/api in "wardle" is not present`},
		{elsewhere, nil, "Passed", "all checks passed"},
		{other, nil, "ServicePortError", `service/api in "wardle" is not listening on port 8443`},
		{service, nil, "EndpointsNotFound", `cannot find endpointslices for service/api in "wardle"`},
		{service, []*discoveryv1.EndpointSlice{slice("https", false)}, "MissingEndpoints", `endpointslices for service/api in "wardle" have no addresses with port name "https"`},
		{service, []*discoveryv1.EndpointSlice{slice("http", true)}, "MissingEndpoints", `endpointslices for service/api in "wardle" have no addresses with port name "https"`},
		{service, []*discoveryv1.EndpointSlice{slice("https", false), slice("https", true)}, "Passed", "all checks passed"},
	} {
		got := endpointCondition(ref, c.service, c.behind)
		if got.Reason != c.reason || got.Message != c.message || (got.Status == apiregistrationv1.ConditionTrue) != (c.reason == "Passed") {
			t.Errorf("got %+v, want %s: %s", got, c.reason, c.message)
		}
	}
}

func TestPause(t *testing.T) {
	began := time.Unix(1000, 0)
	away := []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(began)}}
	for after, want := range map[time.Duration]time.Duration{0: time.Second, 7 * time.Second: 7 * time.Second, time.Hour: recheck} {
		if got := nextCheck(away, began.Add(after)); got != want {
			t.Errorf("after %v the next check is in %v, want %v", after, got, want)
		}
	}
	there, changed := withCondition(away, available(), began.Add(time.Minute))
	if got := nextCheck(there, began.Add(time.Hour)); !changed || got != recheck ||
		there[0].LastTransitionTime.Time != began.Add(time.Minute) {
		t.Errorf("got %v, %+v", got, there)
	}
	same, changed := withCondition(there, available(), began.Add(time.Hour))
	if changed || same[0] != there[0] {
		t.Errorf("got %+v, changed %t", same, changed)
	}
}
