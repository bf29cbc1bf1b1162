package operator

import (
	"context"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"proa.dev/proatest"
)

// start runs the operator with its own cluster.
func start(t *testing.T) client.Client {
	t.Helper()
	cluster := proatest.Start(t, proatest.Memory(), proatest.Simulate(2))
	m, err := ctrl.NewManager(cluster.Config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Exposer{m.GetClient()}).Setup(m); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := m.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); wg.Wait() })
	c, err := client.New(cluster.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in 30 seconds", what)
		}
	}
}

func TestDeploymentIsExposed(t *testing.T) {
	c, ctx := start(t), t.Context()
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{PortAnnotation: "8080"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
			},
		},
	}
	if err := c.Create(ctx, d); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(d)

	// The Service is created and, because the cluster is a whole one, ready Pods too.
	eventually(t, "two ready endpoints", func() bool {
		var slices discoveryv1.EndpointSliceList
		if err := c.List(ctx, &slices, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelServiceName: "web"}); err != nil {
			t.Fatal(err)
		}
		ready := 0
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					ready++
				}
			}
		}
		return ready == 2
	})

	// Without the annotation the Service is deleted; with the Deployment it would be garbage collected.
	with := d.DeepCopy()
	delete(d.Annotations, PortAnnotation)
	if err := c.Patch(ctx, d, client.MergeFrom(with)); err != nil { // an update could conflict with one of the status
		t.Fatal(err)
	}
	eventually(t, "the Service is gone", func() bool { return apierrors.IsNotFound(c.Get(ctx, key, &corev1.Service{})) })

	if err := c.Delete(ctx, d); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Pods are gone", func() bool {
		var pods corev1.PodList
		return c.List(ctx, &pods, client.InNamespace("default")) == nil && len(pods.Items) == 0
	})
}
