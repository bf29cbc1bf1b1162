package node_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node"
	"proa.dev/node/nodestatus"
	"proa.dev/node/runtime"
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

// TestNodeThatCannotStartLeavesNoMount: where the container runtime is missing, the folder of the node is no mount afterwards.
func TestNodeThatCannotStartLeavesNoMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	disk := t.TempDir() // on which nothing is shared
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, ""); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := mounts.UnmountAll(disk); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", disk, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(disk, "node")
	_, err := node.Start(t.Context(), node.Config{
		Config: nodestatus.Config{Name: "a"}, Dir: dir, Log: slog.New(slog.DiscardHandler),
		OwnRuntime: runtime.Config{DataDir: filepath.Join(dir, "runtime"), BinDir: filepath.Join(disk, "nothing")},
	})
	if err == nil || !strings.Contains(err.Error(), "container runtime") {
		t.Errorf("without a runtime: %v", err)
	}
	table, err := mounts.Table()
	if err != nil {
		t.Fatal(err)
	}
	if left := mounts.Under(table, dir); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}
