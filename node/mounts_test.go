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

// TestMountPropagation lets a container mount a file system that the machine and other containers see, whether or not the machine's root
// is shared.
func TestMountPropagation(t *testing.T) {
	r := startTestNode(t, nil)
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
	r.expectLog("two", "seen\n")
	mountPoints := func() (out []string) {
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
	if got := mountPoints(); len(got) != 1 {
		t.Errorf("mount points on the machine: %q", got)
	}
	r.removePod("two")
	r.eventually("the mount is removed with the Pod", func() bool { return len(mountPoints()) == 0 })
}

// TestNodeThatCannotStartLeavesNoMount checks that a node that fails to start without a runtime leaves no mount.
func TestNodeThatCannotStartLeavesNoMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	disk := t.TempDir() // made a private mount below
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, ""); err != nil {
		t.Skipf("cannot mount: %v", err)
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
		t.Errorf("mounts are left: %v", left)
	}
}
