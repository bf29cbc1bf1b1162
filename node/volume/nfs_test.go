package volume_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/volume/mounts"
	"proa.dev/test/program"
)

// fakeMountProgram replaces the mount program, because machines that run tests have no NFS. It records its arguments and mounts a tmpfs,
// unless the name of the server contains "unreachable".
func fakeMountProgram(t *testing.T) (arguments func() string) {
	t.Helper()
	mount, err := exec.LookPath("mount")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@\" >> " + dir + "/arguments\ncase \"$*\" in *unreachable*) echo Connection timed out; exit 32;; esac\nfor last; do :; done\nexec " + mount + " -t tmpfs nfs $last\n"
	if err := program.Write(filepath.Join(dir, "mount"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		text, err := os.ReadFile(filepath.Join(dir, "arguments"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(dir, "arguments"))
		return string(text)
	}
}

func TestNFS(t *testing.T) {
	asRoot(t)
	arguments := fakeMountProgram(t)
	w := startNode(t)
	w.createVolume("share", "", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "fd00::1", Path: "/b"}})
	p := w.Pod("web", `{containers: [{name: c, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}],
		volumes: [{name: a, nfs: {server: files.test, path: /a, readOnly: true}}, {name: b, persistentVolumeClaim: {claimName: share}}]}`)
	w.mount(p)
	w.mount(p) // the second time nothing is mounted
	at := func(name string) string { return w.volumePath(p, "nfs", name) }
	got := strings.Split(strings.TrimSpace(arguments()), "\n")
	slices.Sort(got)
	if want := []string{"-t nfs -- [fd00::1]:/b " + at("share"), "-t nfs -o ro -- files.test:/a " + at("a")}; !slices.Equal(got, want) {
		t.Errorf("mount was called with\n%q, want\n%q", got, want)
	}
	if got, want := w.describeMounts(p), []string{"/a <- /volumes/kubernetes.io~nfs/a ro",
		"/b <- /volumes/kubernetes.io~nfs/share"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, name := range []string{"a", "share"} {
		if is, err := mounts.IsMountPoint(at(name)); !is || err != nil {
			t.Errorf("%s is not mounted: %v", name, err)
		}
	}
	if err := w.Unmount(t.Context(), p.UID); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(at("a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the mount is left: %v", err)
	}
	// An unreachable server, whose name looks like an option of mount.
	failing := w.Pod("far", `{containers: [{name: c, volumeMounts: [{name: a, mountPath: /a}]}], volumes: [{name: a, nfs: {server: "--unreachable", path: /a}}]}`)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Mount(ctx, failing) }()
	w.Until("the Event about the failure", func() bool {
		return slices.ContainsFunc(w.Events(), func(e string) bool {
			return strings.HasPrefix(e, `Warning FailedMount MountVolume.SetUp failed for volume "a" : mount failed: exit status 32`) && strings.Contains(e, "Output: Connection timed out")
		})
	})
	stop()
	if err := <-done; err == nil {
		t.Error("a volume of an unreachable server is mounted")
	}
	if got := arguments(); !strings.HasPrefix(got, "-t nfs -- --unreachable:/a ") {
		t.Errorf("mount was called with %q", got)
	}
}
