package rootca

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestDecide(t *testing.T) {
	created := decide(nil, "ns", "PEM")
	if created == nil || created.Name != name || created.Namespace != "ns" || created.Data["ca.crt"] != "PEM" {
		t.Fatalf("a missing ConfigMap: %+v", created)
	}
	if got := decide(created, "ns", "PEM"); got != nil {
		t.Errorf("nothing to do, got %+v", got)
	}
	reworded := created.DeepCopy()
	reworded.Annotations["kubernetes.io/description"] = "in other words"
	if got := decide(reworded, "ns", "PEM"); got != nil {
		t.Errorf("a description of another writer, got %+v", got)
	}
	for what, change := range map[string]func(*corev1.ConfigMap){
		"other data":    func(c *corev1.ConfigMap) { c.Data["ca.crt"] = "x" },
		"more data":     func(c *corev1.ConfigMap) { c.Data["more"] = "x" },
		"no annotation": func(c *corev1.ConfigMap) { c.Annotations = nil },
	} {
		stored := created.DeepCopy()
		stored.Labels = map[string]string{"keep": "me"}
		change(stored)
		got := decide(stored, "ns", "PEM")
		if got == nil || len(got.Data) != 1 || got.Data["ca.crt"] != "PEM" || got.Annotations["kubernetes.io/description"] == "" ||
			got.Labels["keep"] != "me" {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
