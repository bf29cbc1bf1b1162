package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestContainersAreConfined inspects the process of a container from outside: it must have the restrictions that were requested.
func TestContainersAreConfined(t *testing.T) {
	c := newConfig(t)
	r := startRuntime(t, c)
	defer r.Detach()
	id := runPause(t, r, connect(t, r), c)
	pid, err := os.ReadFile(filepath.Join(r.layout.state, "io.containerd.runtime.v2.task", namespace, id, "init.pid"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%s/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	status := read("status")
	for what, want := range map[string]string{"its system calls are filtered": "\nSeccomp:\t2\n",
		"it is not root": "\nUid:\t65535\t65535\t65535\t65535\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("%s: %q is not in\n%s", what, want, status)
		}
	}
	if score := strings.TrimSpace(read("oom_score_adj")); score != "1000" {
		t.Errorf("the OOM score is %s, want 1000", score)
	}
	if groups := read("cgroup"); !strings.Contains(groups, c.CgroupRoot+"/pod1/"+id) {
		t.Errorf("it is not in its Pod's cgroup:\n%s", groups)
	}
	shims, err := processes(func(args []string) bool { return strings.Contains(strings.Join(args, " "), r.layout.socket) })
	if err != nil || len(shims) != 1 {
		t.Fatalf("shims %v, %v; want one for the Pod", shims, err)
	}
	defer shims[0].Release()
	memory, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", shims[0].Pid))
	for line := range strings.Lines(string(memory)) {
		if strings.HasPrefix(line, "Rss:") || strings.HasPrefix(line, "Pss:") {
			t.Logf("the shim: %s", strings.TrimSpace(line))
		}
	}
}
