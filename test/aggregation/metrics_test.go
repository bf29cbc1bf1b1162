package aggregation

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// metricsAdapter is an API server for all three metrics APIs, like an adapter for a monitoring system.
type metricsAdapter struct {
	mu    sync.Mutex        // guards what follows
	pods  []string          // the names of the Pods of the workloads
	asked map[string]string // the user of the last request, by path
}

func (a *metricsAdapter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[req.URL.Path] = req.Header.Get("X-Remote-User")
	var items []any
	answer := map[string]any{"metadata": map[string]any{}}
	now := time.Now().UTC().Format(time.RFC3339)
	switch path := strings.TrimPrefix(req.URL.Path, "/apis/"); path {
	case "custom.metrics.k8s.io/v1beta2", "custom.metrics.k8s.io/v1beta1", "external.metrics.k8s.io/v1beta1", "metrics.k8s.io/v1beta1":
		answer = map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": path, "resources": []any{}}
	case "custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/requests":
		answer["kind"], answer["apiVersion"] = "MetricValueList", "custom.metrics.k8s.io/v1beta2"
		for _, name := range a.selectedPods(req) {
			items = append(items, map[string]any{"describedObject": map[string]any{"kind": "Pod", "name": name}, "timestamp": now,
				"value": "20"})
		}
	case "custom.metrics.k8s.io/v1beta2/namespaces/default/services/front/requests":
		answer["kind"] = "MetricValueList"
		items = append(items, map[string]any{"describedObject": map[string]any{"kind": "Service", "name": "front"}, "timestamp": now,
			"value": "55"})
	case "external.metrics.k8s.io/v1beta1/namespaces/default/queue":
		answer["kind"] = "ExternalMetricValueList"
		items = append(items, map[string]any{"metricName": "queue", "timestamp": now, "value": "15"},
			map[string]any{"metricName": "queue", "timestamp": now, "value": "15"})
	case "metrics.k8s.io/v1beta1/namespaces/default/pods":
		answer["kind"], answer["apiVersion"] = "PodMetricsList", "metrics.k8s.io/v1beta1"
		for _, name := range a.selectedPods(req) {
			items = append(items, map[string]any{
				"metadata": map[string]any{"name": name, "namespace": "default"}, "timestamp": now, "window": "15s",
				"containers": []any{map[string]any{"name": "c", "usage": map[string]any{"cpu": "10m", "memory": "200Mi"}}},
			})
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404,
			Message: "the server could not find the metric nonsense for pods",
		})
		return
	}
	if items != nil {
		answer["items"] = items
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// selectedPods returns the Pods that a request selects by the label app, which is the prefix of their names. a.mu is held.
func (a *metricsAdapter) selectedPods(req *http.Request) []string {
	app, _ := strings.CutPrefix(req.URL.Query().Get("labelSelector"), "app=")
	return slices.DeleteFunc(slices.Clone(a.pods), func(name string) bool { return app == "" || !strings.HasPrefix(name, app+"-") })
}

// TestAutoscalersUseMetricsAPIs scales workloads by resource, custom and external metrics of an aggregated API server.
func TestAutoscalersUseMetricsAPIs(t *testing.T) {
	t.Parallel()
	at := hostAddress(t)
	cert, key := selfSignedCert(t, "adapter.monitoring.svc")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(at, "0"))
	if err != nil {
		t.Fatal(err)
	}
	a := &metricsAdapter{asked: map[string]string{}}
	backend := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	go func() { _ = backend.ServeTLS(l, "", "") }()
	defer func() { _ = backend.Close() }()
	c := proatest.Start(t, proatest.Memory(), proatest.Simulate(1))

	quantity := func(s string) *resource.Quantity { return new(resource.MustParse(s)) }
	named := autoscalingv2.MetricIdentifier{Name: "requests"}
	average := func(s string) autoscalingv2.MetricTarget {
		return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: quantity(s)}
	}
	front := autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "front"}
	cases := map[string]struct {
		autoscalingv2.MetricSpec
		path, want string
	}{
		"pods": {
			autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType,
				Pods: &autoscalingv2.PodsMetricSource{Metric: named, Target: average("12")}},
			"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/requests",
			"4 ValidMetricFound the HPA was able to successfully calculate a replica count from pods metric requests",
		},
		"object": {
			autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
				Metric: named, DescribedObject: front,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: quantity("40")},
			}},
			"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/services/front/requests",
			"3 ValidMetricFound the HPA was able to successfully calculate a replica count from Service metric requests",
		},
		"external": {
			autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: average("10"),
			}},
			"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue",
			"3 ValidMetricFound the HPA was able to successfully calculate a replica count from external metric queue(nil)",
		},
		"memory": {
			autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceMemory, Target: average("100Mi")}},
			"/apis/metrics.k8s.io/v1beta1/namespaces/default/pods",
			"4 ValidMetricFound the HPA was able to successfully calculate a replica count from memory resource",
		},
		"unknown": {
			autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType,
				Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "nonsense"}, Target: average("1")}},
			"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/nonsense",
			"2 FailedGetPodsMetric the HPA was unable to compute the replica count: unable to get metric nonsense: unable to fetch metrics from custom metrics API: the server could not find the metric nonsense for pods",
		},
	}
	registerAdapter(t, c, at, l.Addr().(*net.TCPAddr).AddrPort().Port(), cert)
	for name := range cases {
		createDeployment(t, c, name)
	}
	pods := awaitPods(t, c, 2*len(cases))
	a.mu.Lock()
	a.pods = pods
	a.mu.Unlock()
	for name, test := range cases {
		if _, err := c.Client.Create(t.Context(), gr.HorizontalPodAutoscalers, &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
				MinReplicas:    new(int32(1)), MaxReplicas: 10, Metrics: []autoscalingv2.MetricSpec{test.MetricSpec},
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	// The first result of each counts: an autoscaler goes on after some seconds, with the new number of Pods.
	results := map[string]string{}
	await(t, func() bool {
		for name := range cases {
			if got := scalingResult(t, c, name); results[name] == "" && !strings.HasSuffix(got, " ") {
				results[name] = got
			}
		}
		return len(results) == len(cases)
	})
	for name, test := range cases {
		if got := results[name]; got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		a.mu.Lock()
		if who := a.asked[test.path]; who != "system:serviceaccount:kube-system:horizontal-pod-autoscaler" {
			t.Errorf("%s: %s was asked by %q", name, test.path, who)
		}
		a.mu.Unlock()
	}

	// A request that the controller's role forbids is not sent to the aggregated server.
	revokeGroup(t, c, "custom.metrics.k8s.io")
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error { // its controller may write the status
		o, err := c.Client.Get(t.Context(), gr.HorizontalPodAutoscalers, "default", "unknown", "")
		if err != nil {
			return err
		}
		h := o.DeepCopyObject().(*autoscalingv2.HorizontalPodAutoscaler)
		h.Spec.MaxReplicas++ // so that it is looked at
		_, err = c.Client.Update(t.Context(), gr.HorizontalPodAutoscalers, h, "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		return strings.Contains(scalingResult(t, c, "unknown"), `pods.custom.metrics.k8s.io "*" is forbidden: User "system:serviceaccount:kube-system:horizontal-pod-autoscaler" cannot get resource "pods/nonsense" in API group "custom.metrics.k8s.io" in the namespace "default"`)
	})
}

// revokeGroup removes an API group from the role of the controller.
func revokeGroup(t *testing.T, c *proatest.Cluster, group string) {
	t.Helper()
	o, err := c.Client.Get(t.Context(), gr.ClusterRoles, "", "system:controller:horizontal-pod-autoscaler", "")
	if err != nil {
		t.Fatal(err)
	}
	role := o.DeepCopyObject().(*rbacv1.ClusterRole)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, group) })
	if _, err := c.Client.Update(t.Context(), gr.ClusterRoles, role, ""); err != nil {
		t.Fatal(err)
	}
}

// registerAdapter registers APIServices for the metrics APIs that refer to an adapter, and waits until all are available. The newer
// version of custom metrics is the preferred one.
func registerAdapter(t *testing.T, c *proatest.Cluster, at string, port uint16, ca []byte) {
	t.Helper()
	createNamespace(t, c, "monitoring")
	if _, err := c.Client.Create(t.Context(), gr.Services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "adapter"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.Create(t.Context(), gr.EndpointSlices, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "adapter-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "adapter"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{at}}},
		Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(port))}},
	}); err != nil {
		t.Fatal(err)
	}
	for name, priority := range map[string]int32{"v1beta1.custom.metrics.k8s.io": 100, "v1beta2.custom.metrics.k8s.io": 200,
		"v1beta1.external.metrics.k8s.io": 100, "v1beta1.metrics.k8s.io": 100} {
		version, group, _ := strings.Cut(name, ".")
		spec := apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: 100, VersionPriority: priority, CABundle: ca,
			Service: &apiregistrationv1.ServiceReference{Namespace: "monitoring", Name: "adapter", Port: new(int32(443))},
		}
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // a controller may write the status
			have, err := c.Client.Get(t.Context(), gr.APIServices, "", name, "")
			if err != nil {
				_, err = c.Client.Create(t.Context(), gr.APIServices,
					&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
				return err
			}
			s := have.DeepCopyObject().(*apiregistrationv1.APIService) // the one of the built-in API
			s.Labels, s.Spec = nil, spec
			_, err = c.Client.Update(t.Context(), gr.APIServices, s, "")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		await(t, func() bool {
			o, err := c.Client.Get(t.Context(), gr.APIServices, "", name, "")
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(o.(*apiregistrationv1.APIService).Status.Conditions,
				func(c apiregistrationv1.APIServiceCondition) bool {
					return c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue && c.Reason == "Passed"
				})
		})
	}
}

// createDeployment creates a Deployment of two Pods.
func createDeployment(t *testing.T, c *proatest.Cluster, name string) {
	t.Helper()
	chosen := map[string]string{"app": name}
	if _, err := c.Client.Create(t.Context(), gr.Deployments, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: chosen},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: chosen},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		},
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitPods waits until so many Pods are ready, and their Deployments say so, and returns their names.
func awaitPods(t *testing.T, c *proatest.Cluster, n int) (names []string) {
	t.Helper()
	pods, err := c.Client.View(t.Context(), gr.Pods)
	if err != nil {
		t.Fatal(err)
	}
	deployments, err := c.Client.View(t.Context(), gr.Deployments)
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		names = names[:0]
		for o := range pods.List("default") {
			p := o.(*corev1.Pod)
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) && labels.Set(p.Labels).Has("app") {
				names = append(names, p.Name)
			}
		}
		ready := int32(0)
		for o := range deployments.List("default") {
			ready += o.(*appsv1.Deployment).Status.ReadyReplicas
		}
		return len(names) == n && int(ready) == n
	})
	return names
}

// scalingResult returns the replicas of a Deployment, and the reason and message of the condition ScalingActive of its autoscaler.
func scalingResult(t *testing.T, c *proatest.Cluster, name string) string {
	t.Helper()
	o, err := c.Client.Get(t.Context(), gr.HorizontalPodAutoscalers, "default", name, "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.Client.Get(t.Context(), gr.Deployments, "default", name, "")
	if err != nil {
		t.Fatal(err)
	}
	why := ""
	for _, c := range o.(*autoscalingv2.HorizontalPodAutoscaler).Status.Conditions {
		if c.Type == autoscalingv2.ScalingActive {
			why = c.Reason + " " + c.Message
		}
	}
	return fmt.Sprint(*d.(*appsv1.Deployment).Spec.Replicas, " ", why)
}
