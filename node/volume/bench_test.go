package volume_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
)

// BenchmarkMount mounts the volumes of an ordinary Pod: a ConfigMap, a Secret, a token with the CA certificate of the
// cluster, and an emptyDir. Unmounting is not measured.
func BenchmarkMount(b *testing.B) {
	w := startNode(b)
	w.Create(gr.ConfigMaps, configMap("settings", "a", "1"))
	w.Create(gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"},
		StringData: map[string]string{"k": "secret-value"}})
	p := w.Pod("web", `{containers: [{name: c, volumeMounts: [{name: m, mountPath: /m}, {name: s, mountPath: /s}, {name: t, mountPath: /t}, {name: e, mountPath: /e}]}], volumes: [
		{name: m, configMap: {name: settings}}, {name: s, secret: {secretName: s}}, {name: e, emptyDir: {}},
		{name: t, projected: {sources: [{serviceAccountToken: {path: token}}, {configMap: {name: kube-root-ca.crt}}]}}]}`)
	for b.Loop() {
		w.mount(p)
		b.StopTimer()
		if err := w.Unmount(w.Context(), p.UID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
