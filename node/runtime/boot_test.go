package runtime

import (
	"os"
	"strings"
	"testing"

	"proa.dev/node/cri"
)

// TestStartAfterBoot simulates a reboot: processes and mounts are gone, but all files are left.
func TestStartAfterBoot(t *testing.T) {
	c := newConfig(t)
	r := startRuntime(t, c)
	client := connect(t, r)
	id := runPause(t, r, client, c)
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := endContainers(t.Context(), r.layout, c.CgroupRoot, containerIDs(r.layout)); err != nil {
		t.Fatal(err)
	}
	if err := unmountBelow(r.layout.state); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.layout.boot, []byte("the boot before"), 0o600); err != nil {
		t.Fatal(err)
	}

	r = startRuntime(t, c)
	defer r.Detach()
	if isRunning(t, client, id) {
		t.Error("the old container runs")
	}
	// The old sandbox is listed and can be removed, and new ones can be created.
	sandboxes, err := client.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil || len(sandboxes.Items) != 1 || sandboxes.Items[0].State != cri.SandboxNotReady {
		t.Fatalf("sandboxes %v, %v", sandboxes, err)
	}
	if _, err := client.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: sandboxes.Items[0].Id}); err != nil {
		t.Errorf("stop the old sandbox: %v", err)
	}
	if _, err := client.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: sandboxes.Items[0].Id}); err != nil {
		t.Errorf("remove the old sandbox: %v", err)
	}
	if !isRunning(t, client, runPause(t, r, client, c)) {
		t.Error("no container runs after a boot")
	}
	images, err := ListImages(t.Context(), r.Socket())
	if err != nil || len(images) != 1 || !strings.Contains(images[0].Name, "pause") {
		t.Errorf("images %v, %v", images, err)
	}
}
