package runtime

import (
	"os"
	"strings"
	"testing"

	"proa.dev/node/cri"
)

// TestAfterABoot simulates a power loss: no process and no mount is left, but all files are.
func TestAfterABoot(t *testing.T) {
	c := room(t)
	r := start(t, c)
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

	r = start(t, c)
	defer r.Detach()
	if running(t, client, id) {
		t.Error("the container runs")
	}
	// What was there is known, and can be removed; and there is room for new ones.
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
	if !running(t, client, runPause(t, r, client, c)) {
		t.Error("no container runs after a boot")
	}
	images, err := ListImages(t.Context(), r.Socket())
	if err != nil || len(images) != 1 || !strings.Contains(images[0].Name, "pause") {
		t.Errorf("images %v, %v", images, err)
	}
}
