package node_test

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/gr"
	"proa.dev/node/volume/mounts"
	images "proa.dev/test/images/build"
)

// TestPropagation lets a container mount something that the machine and other containers see, whether or not the machine's root
// is shared.
func TestPropagation(t *testing.T) {
	r := newRoom(t, nil)
	box, err := images.Archives(t.Context(), "busybox")
	if err != nil {
		t.Skipf("the image of the test cannot be built here: %v", err)
	}
	r.Load(t, box[0])
	create(r, gr.Pods, &corev1.Pod{}, `
metadata: {name: two, namespace: default}
spec:
  nodeName: a
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, emptyDir: {}}]
  containers:
  - name: maker
    image: "proa.test/busybox:1"
    command: [sh, -c, "mkdir /v/in && mount -t tmpfs made-here /v/in && echo seen > /v/in/file && sleep 1000"]
    securityContext: {privileged: true}
    volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]
  - name: c
    image: "proa.test/busybox:1"
    command: [sh, -c, "until cat /v/in/file; do sleep 0.1; done; sleep 1000"]
    volumeMounts: [{name: v, mountPath: /v, mountPropagation: HostToContainer}]
`)
	r.expect("two", "seen\n")
	here := func() (out []string) {
		table, err := mounts.Table()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mounts.Under(table, filepath.Join(r.config.Dir, "pods")) {
			if strings.HasSuffix(m.Point, "/in") {
				out = append(out, m.Point)
			}
		}
		return out
	}
	if got := here(); len(got) != 1 {
		t.Errorf("on the machine it is at %q", got)
	}
	r.remove("two")
	r.until("the mount goes with the Pod", func() bool { return len(here()) == 0 })
}
