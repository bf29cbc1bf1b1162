package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRestoreAtAnotherPath checks that a backup that is restored at another path, as docs/guide/operations.md describes,
// has its own volumes, and that those of the original are not touched.
func TestRestoreAtAnotherPath(t *testing.T) {
	t.Parallel()
	m := newMachine(t, needNode(t))
	m.up()
	images := archives(t, "busybox")
	m.load(images)
	k := killTest{machine: m}
	manifest := filepath.Join(m.dir, "keeper.yaml")
	if err := os.WriteFile(manifest, []byte(podWithVolume), 0o600); err != nil {
		t.Fatal(err)
	}
	k.kubectl("apply", "-f", manifest)
	k.kubectl("rollout", "status", "deployment/keeper", "--timeout=90s")
	k.kubectl("exec", "deployment/keeper", "--", "sh", "-c", "echo original >/data/file")
	k.kubectl("create", "secret", "generic", "kept", "--from-literal=a=b")
	proa := func(args ...string) {
		t.Helper()
		if out, err := m.run(t.Context(), "proa", args...); err != nil {
			t.Fatalf("proa %v: %v\n%s", args, err, out)
		}
	}
	proa("down", "--data-dir", m.data())

	// The commands of the guide.
	restored := filepath.Join(m.dir, "elsewhere", "data")
	if err := os.MkdirAll(filepath.Dir(restored), 0o700); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(m.dir, "backup.tgz")
	for _, args := range [][]string{
		{"-C", m.dir, "--one-file-system", "--exclude=data/node/containerd", "--exclude=data/nodes/*/node/containerd", "-czf", backup,
			"data"},
		{"-C", filepath.Dir(restored), "-xzpf", backup},
	} {
		if out, err := exec.Command("tar", args...).CombinedOutput(); err != nil {
			t.Fatalf("tar %v: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(restored, "server.log")); err == nil && t.Failed() {
			t.Logf("the log of the restored cluster:\n%s", text[max(0, len(text)-4000):])
		}
		if out, err := exec.Command(m.bins["proa"], "down", "--purge", "--data-dir", restored).CombinedOutput(); err != nil {
			t.Errorf("down --purge: %v\n%s", err, out)
		}
	})
	started := make(chan struct{})
	go func() {
		defer close(started)
		if out, err := m.run(t.Context(), "proa", "up", "--data-dir", restored, "--no-merge", "--timeout", "2m"); err != nil {
			t.Errorf("proa up: %v\n%s", err, out)
		}
	}()
	// The node's Lease in the backup was renewed a few seconds ago, and a node does not take a name whose Lease is renewed: delete it.
	k.until("the Lease of the node is not deleted", func() bool {
		_, err := m.run(t.Context(), "kubectl", "delete", "lease", "--namespace", "kube-node-lease", "a", "--ignore-not-found")
		return err == nil
	})
	<-started
	proa(append([]string{"images", "load", "--data-dir", restored}, images...)...)
	k.until("the restored volume is not shown", func() bool {
		out, err := m.run(t.Context(), "kubectl", "exec", "deployment/keeper", "--", "cat", "/data/file")
		return err == nil && out == "original\n"
	})
	if out := k.kubectl("get", "secret", "kept", "-o", "jsonpath={.data.a}"); out != "Yg==" {
		t.Errorf("the Secret has %q", out)
	}
	k.kubectl("exec", "deployment/keeper", "--", "sh", "-c", "echo restored >/data/file")
	for dir, want := range map[string]string{m.data(): "original\n", restored: "restored\n"} {
		found, err := filepath.Glob(filepath.Join(dir, "node/local-path/*/file"))
		if err != nil || len(found) != 1 {
			t.Fatalf("the volumes in %s: %v, %v", dir, found, err)
		}
		if text, err := os.ReadFile(found[0]); err != nil || string(text) != want {
			t.Errorf("%s has %q, %v, want %q", found[0], text, err, want)
		}
	}
}

// podWithVolume is the manifest of a Pod with a volume that is a folder of its node.
const podWithVolume = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Mi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: keeper}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: keeper}}
  template:
    metadata: {labels: {app: keeper}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: proa.test/busybox:1
        command: [sleep, "3600"]
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: kept}}]
`
