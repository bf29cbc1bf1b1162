package volume_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node/volume"
)

// TestContentsAreBounded mounts volumes that name a large text very often.
func TestContentsAreBounded(t *testing.T) {
	w := startNode(t)
	w.Create(gr.ConfigMaps, configMap("large", "k", strings.Repeat("x", 900_000)))
	w.Create(gr.ConfigMaps, configMap("small", "k", "x"))
	items := func(n int, format string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(all, ", ")
	}
	key, field := "{key: k, path: f%d}", "{path: f%d, fieldRef: {apiVersion: v1, fieldPath: metadata.annotations}}"
	for name, c := range map[string]struct{ volume, want string }{
		"configmap": {"configMap: {name: large, items: [" + items(60, key) + "]}", "its files have more than 32 MiB"},
		"folders": {"configMap: {name: small, items: [" + items(200, "{key: k, path: f%d/"+strings.Repeat("d/", 100)+"x}") + "]}",
			"its files have more"},
		"fields": {"downwardAPI: {items: [" + items(200, field) + "]}", "its fields of the Pod have more than 32 MiB"},
		"projected": {"projected: {sources: [" + items(8, "{configMap: {name: large, items: [{key: k, path: a%[1]d}, {key: k, path: b%[1]d}, "+
			"{key: k, path: c%[1]d}, {key: k, path: d%[1]d}, {key: k, path: e%[1]d}]}}") + "]}", "its sources have more than 32 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.Pod("p-"+name, "{containers: [{name: c, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, "+c.volume+"}]}")
			p.Annotations = map[string]string{"a": strings.Repeat("x", 250_000)}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error, 1)
			go func() { done <- w.Mount(ctx, p) }()
			w.Until("the Event", func() bool {
				return len(done) > 0 || strings.Contains(strings.Join(w.Events(), "\n"), c.want)
			})
			stop()
			if err := <-done; err == nil {
				t.Error("the volume is mounted")
			}
			if _, err := os.Stat(w.volumePath(p, "configmap", "v")); err == nil {
				t.Error("the volume exists")
			}
		})
	}
	many := &corev1.Pod{}
	many.UID = types.UID("many")
	for i := range 600 {
		name := fmt.Sprint("v", i)
		many.Spec.Volumes = append(many.Spec.Volumes, corev1.Volume{Name: name})
		many.Spec.Containers = append(many.Spec.Containers, corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: name}}})
	}
	if err := w.Mount(t.Context(), many); err == nil || !w.Recorded("Warning FailedMount "+err.Error()) {
		t.Errorf("600 volumes: %v, events %q", err, w.Events())
	}
}

// hangingDriver is a CSI driver that answers only when nobody waits any more.
type hangingDriver struct {
	volume.Drivers
	called chan struct{}
}

func (h hangingDriver) Publish(ctx context.Context, _ *volume.DriverVolume) (*volume.Published, error) {
	h.called <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (h hangingDriver) Unpublish(context.Context, types.UID, string) error { return nil }

// TestUnmountEndsTheWork unmounts the volumes of a Pod while a driver hangs: the work on them ends at once.
func TestUnmountEndsTheWork(t *testing.T) {
	w := startNode(t)
	driver := hangingDriver{called: make(chan struct{}, 1)}
	w.Drivers = driver
	p := &corev1.Pod{}
	text := `{"metadata": {"uid": "u1"}, "spec": {"containers": [{"volumeMounts": [{"name": "v"}]}],
		"volumes": [{"name": "v", "csi": {"driver": "x"}}]}}`
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	mounted := make(chan error, 1)
	go func() { mounted <- w.Mount(t.Context(), p) }()
	<-driver.called
	unmounted := make(chan error, 1)
	go func() { unmounted <- w.Unmount(t.Context(), p.UID) }()
	select {
	case err := <-unmounted:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the volumes are not unmounted, because the work on them goes on")
	}
	if err := <-mounted; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Mount returned %v", err)
	}
}
