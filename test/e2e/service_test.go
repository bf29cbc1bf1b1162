package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/test/ports"
)

// TestServices reaches Services of every type from Pods, from the node and from outside the cluster: a network namespace that is
// connected to the machine.
func TestServices(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	healthz := ports.Strings(t, 1)[0]
	m := newMachine(t, bins, "--proxy-healthz", "127.0.0.1:"+healthz, "--external-ip-ranges", "192.0.2.77")
	world, address := newOutsideNamespace(t)
	m.up()
	m.load(archives(t, "tool", "busybox"))
	env := map[string]string{"WORLD": "ip netns exec " + world, "WORLDIP": address, "HEALTHZ": healthz}
	for _, path := range scripts(t, "testdata/services") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			own := map[string]string{"LB": ports.Strings(t, 1)[0]}
			for k, v := range env {
				own[k] = v
			}
			m.script(t, path, own).run()
		})
	}
}

// newOutsideNamespace creates a network namespace whose default route is through this machine, and returns its name and address.
func newOutsideNamespace(t *testing.T) (name, address string) {
	t.Helper()
	for _, program := range []string{"ip", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not here: the world outside is made and asked with it", program)
		}
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	// A network that is reserved for tests, other than that of the nodes behind a router.
	n, octet := rand.IntN(64), (os.Getpid()+128)%256
	name, link := fmt.Sprintf("proa-e2e-%d-%d", octet, n), fmt.Sprintf("pe%d-%d", octet, n)
	here, there := fmt.Sprintf("198.19.%d.%d", octet, n<<2+1), fmt.Sprintf("198.19.%d.%d", octet, n<<2+2)
	run("netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	run("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", link).Run() })
	run("addr", "add", here+"/30", "dev", link)
	run("link", "set", link, "up")
	for _, args := range []string{"link set lo up", "addr add " + there + "/30 dev eth0", "link set eth0 up",
		"route add default via " + here} {
		run(append([]string{"-n", name}, strings.Fields(args)...)...)
	}
	return name, there
}
