package runtime

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"proa.dev/node/cri"
	"proa.dev/node/subprocess"
)

// needParts skips a test that runs containers if that is not possible here.
func needParts(t testing.TB) (bin string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "pause"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Skipf("%v; run make build", err)
		}
	}
	return bin
}

// newConfig returns a Config with a data folder, which is purged at the end of the test.
func newConfig(t testing.TB, below ...string) Config {
	t.Helper()
	bin := needParts(t)
	dir, err := os.MkdirTemp("", "rt-") //nolint:usetesting // the path of a socket must be short, and the cleanup checks the folder
	if err != nil {
		t.Fatal(err)
	}
	c := Config{DataDir: filepath.Join(append([]string{dir}, below...)...), BinDir: bin, CgroupRoot: "/proa-test-" + filepath.Base(dir)}
	t.Cleanup(func() {
		if err := Purge(context.WithoutCancel(t.Context()), c, logger(t)); err != nil {
			t.Errorf("purge: %v", err)
		}
		if remaining := leftovers(t, c); len(remaining) > 0 {
			t.Errorf("not purged: %q", remaining)
		}
		_ = os.RemoveAll(dir)
	})
	return c
}

// leftovers returns the mounts, files, processes and cgroups that are left of a purged runtime.
func leftovers(t testing.TB, c Config) (out []string) {
	l := newLayout(c.DataDir)
	for _, dir := range []string{l.dir, l.run} {
		mounts, err := mountsBelow(dir)
		if err != nil {
			t.Error(err)
		}
		out = append(out, mounts...)
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			out = append(out, fmt.Sprint(dir, entries))
		}
	}
	found, err := processes(func(args []string) bool {
		return strings.Contains(strings.Join(args, " "), l.dir+"/") || strings.Contains(strings.Join(args, " "), l.run+"/")
	})
	if err != nil {
		t.Error(err)
	}
	for _, p := range found {
		out = append(out, fmt.Sprint(p.Pid, subprocess.Arguments(p.Pid)))
		p.Release()
	}
	roots, err := hierarchies()
	if err != nil {
		t.Error(err)
	}
	for _, root := range roots {
		if own := filepath.Join(root, c.CgroupRoot); isFolder(own) {
			out = append(out, own)
		}
	}
	return out
}

func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func startRuntime(t testing.TB, c Config) *Runtime {
	t.Helper()
	r, err := Start(t.Context(), c, logger(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func connect(t testing.TB, r *Runtime) *cri.Client {
	t.Helper()
	client, err := cri.Dial(r.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// pauseSandbox returns the configuration of a sandbox in the network of the host.
func pauseSandbox(c Config, name string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		LogDirectory: c.DataDir + "/root",
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    c.CgroupRoot + "/pod" + name,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceNode}},
		},
	}
}

// pauseContainer returns the configuration of a container that runs the pause image.
func pauseContainer() *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: PauseImage}, LogPath: "c.log",
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, OomScoreAdj: 1000},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceNode, Pid: cri.NamespaceContainer},
				Seccomp:          &cri.SecurityProfile{ProfileType: cri.ProfileRuntimeDefault},
			},
		},
	}
}

// runPause starts a sandbox with one container in it, and returns the id of the container.
func runPause(t *testing.T, r *Runtime, client *cri.Client, c Config) string {
	t.Helper()
	ctx := t.Context()
	sandbox := pauseSandbox(c, "1")
	run, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatalf("run a sandbox: %v\n%s", err, subprocess.Tail(r.layout.log))
	}
	made, err := client.CreateContainer(ctx,
		&cri.CreateContainerRequest{PodSandboxId: run.PodSandboxId, SandboxConfig: sandbox, Config: pauseContainer()})
	if err != nil {
		t.Fatalf("create a container: %v", err)
	}
	if _, err := client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		t.Fatalf("start a container: %v", err)
	}
	return made.ContainerId
}

// isRunning tells whether a container runs. It waits until the runtime answers.
func isRunning(t *testing.T, client *cri.Client, id string) bool {
	t.Helper()
	for {
		s, err := client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
		if err == nil {
			return s.Status.State == cri.ContainerRunning
		}
		if !cri.Unavailable(err) && !strings.Contains(err.Error(), "not initialized") {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the runtime does not answer")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestContainersOutliveContainerd(t *testing.T) {
	c := newConfig(t)
	r := startRuntime(t, c)
	defer r.Detach()
	client := connect(t, r)
	id := runPause(t, r, client, c)
	first := r.Pid()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for r.Pid() == first || r.Pid() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if !isRunning(t, client, id) {
		t.Error("the container has ended with containerd")
	}
}

func TestRunningContainerdIsTakenOver(t *testing.T) {
	c := newConfig(t)
	r := startRuntime(t, c)
	client := connect(t, r)
	id := runPause(t, r, client, c)
	pid := r.Pid()

	if _, err := Start(t.Context(), c, logger(t)); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second runtime in the same folder: %v", err)
	}
	r.Detach() // as after a killed agent, containerd keeps running and there is no lock

	r = startRuntime(t, c)
	if r.Pid() != pid {
		t.Errorf("containerd is process %d, was %d", r.Pid(), pid)
	}
	if !isRunning(t, client, id) {
		t.Error("the container has ended with the agent")
	}
	// A containerd that was taken over is supervised like one that was started.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for r.Pid() == pid || r.Pid() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if !isRunning(t, client, id) {
		t.Error("the container has ended with containerd")
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p, err := findContainerd(r.layout); err != nil || p != nil {
		t.Errorf("after Stop there is containerd %v, %v", p, err)
	}

	// With other settings containerd is restarted, which does not affect the container.
	c.LogLevel = "info"
	r = startRuntime(t, c)
	pid = r.Pid()
	r.Detach()
	c.LogLevel = "debug"
	r = startRuntime(t, c)
	defer r.Detach()
	if r.Pid() == pid {
		t.Error("containerd keeps running with the old settings")
	}
	if !isRunning(t, client, id) {
		t.Error("the container has ended with the restart of containerd")
	}
}

func TestPauseIsPinned(t *testing.T) {
	c := newConfig(t, strings.Repeat("deep/", 25)) // too deep for a socket
	r := startRuntime(t, c)
	defer r.Detach()
	images, err := ListImages(t.Context(), r.Socket())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(images, func(i Image) bool { return i.Name == PauseImage && i.Pinned && i.Digest != "" }) {
		t.Errorf("images %+v, want %s pinned", images, PauseImage)
	}
}
