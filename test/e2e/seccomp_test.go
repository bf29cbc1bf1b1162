package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSeccompDefault checks that a container without a seccomp profile has the default profile of the runtime on every node of the
// machine, unless the setting is off. Privileged and unconfined containers have none.
func TestSeccompDefault(t *testing.T) {
	t.Parallel()
	m := newMachine(t, needNode(t), "--nodes", "2")
	m.up()
	m.load(archives(t, "busybox"))
	const none, filtered = "0", "2" // as /proc shows them
	contexts := map[string]string{
		"plain": "{}", "privileged": "{privileged: true}", "unconfined": "{seccompProfile: {type: Unconfined}}",
		"asks": "{seccompProfile: {type: RuntimeDefault}}",
	}
	look := func(round string, want map[string]string) {
		t.Helper()
		var pods strings.Builder
		for _, node := range []string{"a", "a-2"} {
			for name, context := range contexts {
				fmt.Fprintf(&pods, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s-%s-%s}\nspec: {nodeName: %[3]s, restartPolicy: Never, containers: [{name: c, image: 'proa.test/busybox:1', command: [cat, /proc/1/status], securityContext: %s}]}\n",
					round, name, node, context)
			}
		}
		file := filepath.Join(m.dir, round+".yaml")
		if err := os.WriteFile(file, []byte(pods.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := m.run(t.Context(), "kubectl", "apply", "-f", file); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for name := range contexts {
			for _, node := range []string{"a", "a-2"} {
				pod := round + "-" + name + "-" + node
				if out, err := m.run(t.Context(), "kubectl", "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/"+pod,
					"--timeout=120s"); err != nil {
					t.Errorf("%v\n%s", err, out)
					continue
				}
				out, err := m.run(t.Context(), "kubectl", "logs", pod)
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				if got := regexp.MustCompile(`(?m)^Seccomp:\s+(\d)$`).FindStringSubmatch(out); got == nil || got[1] != want[name] {
					t.Errorf("%s: Seccomp is %v, want %s", pod, got, want[name])
				}
			}
		}
	}
	look("default", map[string]string{"plain": filtered, "privileged": none, "unconfined": none, "asks": filtered})
	if out, err := m.run(t.Context(), "proa", "down", "--data-dir", m.data()); err != nil {
		t.Fatalf("proa down: %v\n%s", err, out)
	}
	m.args = append(m.args, "--seccomp-default=false")
	m.up()
	look("off", map[string]string{"plain": none, "privileged": none, "unconfined": none, "asks": filtered})
}
