package benchrun

import (
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workers lets n workers call do with rising numbers until the time is over or,
// when limit is not zero, until limit calls are made. It returns the number of
// calls and their rate a second.
func Workers(n int, window time.Duration, limit int, do func(int) error) (int, float64, error) {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		wg.Go(func() {
			for time.Since(start) < window && failed.Load() == nil {
				i := int(next.Add(1) - 1)
				if limit > 0 && i >= limit {
					return
				}
				if err := do(i); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := failed.Load(); err != nil {
		return 0, 0, *err
	}
	count := int(next.Load())
	if limit > 0 {
		count = min(count, limit)
	}
	if count == 0 {
		return 0, 0, errNoSamples
	}
	return count, float64(count) / elapsed.Seconds(), nil
}

// Deployment returns a Deployment of small Pods.
func Deployment(namespace, name string, replicas int) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: PodSpec("10m")},
		},
	}
}
