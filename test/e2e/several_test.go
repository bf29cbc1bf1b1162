package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSeveralNodes runs three nodes on this machine, two of them in network namespaces. The scripts run one after the other, because
// they kill, stop and remove what others use. In the end the cluster is purged, and nothing may be left.
func TestSeveralNodes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, needNode(t), "--nodes", "3")
	tools := archives(t, "tool", "busybox")
	m.up()
	m.load(tools)
	for _, path := range scripts(t, "testdata/several") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			m.script(t, path, nil).run()
		})
	}
	made := m.traces()
	for _, what := range []string{"interface", "mount", "cgroup", "process"} {
		if !slices.ContainsFunc(made, func(s string) bool { return strings.HasPrefix(s, what) }) {
			t.Errorf("no %s of the cluster was found; this test looks in the wrong place", what)
		}
	}
	if out, err := m.run(t.Context(), "proa", "down", "--purge", "--now", "--data-dir", m.data()); err != nil {
		t.Fatalf("down --purge: %v\n%s", err, out)
	}
	left := m.traces()
	for deadline := time.Now().Add(waitLimit); len(left) > 0 && time.Now().Before(deadline); left = m.traces() {
		time.Sleep(200 * time.Millisecond)
	}
	if len(left) > 0 {
		t.Errorf("down --purge has left\n%s", strings.Join(left, "\n"))
	}
}

// traces returns what the cluster has created on this machine, which it finds by the cluster's folder and by names that are derived
// from paths in it.
func (m *machine) traces() (out []string) {
	m.t.Helper()
	marks := []string{m.data()}
	for _, dir := range []string{"", "nodes/a-2", "nodes/a-3"} {
		for _, below := range []string{"", "node", "node/containerd", "node/network"} {
			sum := sha256.Sum256([]byte(filepath.Join(m.data(), dir, below)))
			marks = append(marks, hex.EncodeToString(sum[:4]))
		}
	}
	all := traces(m.t)
	for what := range all {
		if slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(what, mark) }) {
			out = append(out, what)
		}
	}
	return out
}

// TestJoinedNodes joins nodes like those of other machines. Each has its own link, and the router between them has no routes to
// Pods: traffic between their Pods goes through tunnels.
func TestJoinedNodes(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	w := newRoutedNetwork(t, 18)
	w.play(bins, "testdata/joined")
}

// play starts a cluster on this machine with further flags, joins a node in each namespace, and runs the scripts of a folder.
func (w *routedNetwork) play(bins programs, folder string, flags ...string) {
	w.t.Helper()
	m := newMachine(w.t, bins, append([]string{"--node-ip", w.machine}, flags...)...)
	m.up()
	tools := archives(w.t, "tool", "busybox")
	m.load(tools)
	for i, name := range []string{"b", "c"} {
		w.join(m, name, w.places[i], tools)
	}
	// A command that starts the agent of c again, with further arguments.
	agent := filepath.Join(w.dir, "agent")
	line := fmt.Sprintf("exec nsenter --net=%s %s agent --server %s '%s' \"$@\"\n", w.places[1], bins["proa"], w.url(m),
		strings.Join(w.settings(m, "c"), "' '"))
	if err := os.WriteFile(agent, []byte(line), 0o600); err != nil {
		w.t.Fatal(err)
	}
	for _, path := range scripts(w.t, folder) {
		w.t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			m.script(t, path, map[string]string{"WORLD": w.dir, "PROA": bins["proa"], "AGENT": agent}).run()
		})
	}
}

// routedNetwork is this machine, a router, and two network namespaces behind it, in which nodes join.
type routedNetwork struct {
	t       *testing.T
	dir     string
	machine string   // this machine's address
	places  []string // the namespaces in which nodes join
}

// newRoutedNetwork creates a network in 198.18.0.0/16 or 198.19.0.0/16. The test is skipped if a tool that it needs is missing.
func newRoutedNetwork(t *testing.T, network int, tools ...string) *routedNetwork {
	t.Helper()
	for _, tool := range append([]string{"ip", "nsenter", "unshare", "mount"}, tools...) {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("machines are played by namespaces, and that needs %s: %v", tool, err)
		}
	}
	dir, err := os.MkdirTemp("", "proa-world-") //nolint:usetesting // names of t.TempDir are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	// A random network that is reserved for tests, so that two of them can exist at the same time.
	at := fmt.Sprintf("198.%d.%d", network, os.Getpid()%256)
	w := &routedNetwork{t: t, dir: dir, machine: at + ".1", places: []string{filepath.Join(dir, "b"), filepath.Join(dir, "c")}}
	cable := fmt.Sprintf("pw%d-%d", network, os.Getpid())
	t.Cleanup(func() {
		_ = w.sh(context.Background(), "ip link del "+cable+" 2>/dev/null; umount "+dir+"/router "+dir+"/b "+dir+"/c")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	err = w.sh(t.Context(), strings.NewReplacer("DIR", dir, "AT", at, "CABLE", cable).Replace(`set -e
inside() { place=DIR/$1; shift; nsenter --net=$place "$@"; }
for n in router b c; do touch DIR/$n; unshare --net=DIR/$n true; inside $n ip link set lo up; done
ip link add CABLE type veth peer name up netns DIR/router
ip addr add AT.1/30 dev CABLE
ip link set CABLE up
inside router ip addr add AT.2/30 dev up
inside router ip link set dev up up
inside router sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
for n in b:64 c:128; do
  name=${n%:*} base=${n#*:}
  inside router ip link add to-$name type veth peer name eth0 netns DIR/$name
  inside router ip addr add AT.$((base+1))/26 dev to-$name
  inside router ip link set to-$name up
  inside $name ip addr add AT.$((base+2))/26 dev eth0
  inside $name ip link set eth0 up
  inside $name ip route add default via AT.$((base+1))
  ip route add AT.$base/26 via AT.2
done
`))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *routedNetwork) sh(ctx context.Context, line string) error {
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", line).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// url returns the URL at which the nodes reach the server.
func (w *routedNetwork) url(m *machine) string {
	return "https://" + w.machine + ":" + m.address[strings.LastIndexByte(m.address, ':')+1:]
}

// settings returns the flags of an agent besides --server and --token. The agent reads the ranges of Pods and Services from the
// server.
func (w *routedNetwork) settings(m *machine, name string) []string {
	out := []string{"--data-dir", filepath.Join(m.dir, name), "--node", name}
	for i, arg := range m.args {
		if slices.Contains([]string{"--image-gc-high-threshold", "--eviction-hard"}, arg) {
			out = append(out, arg, m.args[i+1])
		}
	}
	return out
}

// join joins a node in a namespace until the test ends.
func (w *routedNetwork) join(m *machine, name, place string, images []string) {
	w.t.Helper()
	out, err := m.run(w.t.Context(), "proa", "token", "create", "--data-dir", m.data(), "--server", w.url(m))
	if err != nil {
		w.t.Fatalf("token create: %v\n%s", err, out)
	}
	// Users run the command that it prints on the other machine.
	words := strings.Fields(out[strings.Index(out, "proa agent")+len("proa "):])
	data := filepath.Join(m.dir, name)
	args := append([]string{"--net=" + place, m.bins["proa"]}, words...)
	args = append(args, w.settings(m, name)...)
	log, err := os.Create(data + ".log")
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	agent := exec.Command("nsenter", args...)
	agent.Stdout, agent.Stderr = log, log
	if err := agent.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			text, _ := os.ReadFile(data + ".log")
			w.t.Logf("the log of %s:\n%s", name, text)
		}
		checkRulesAreReadable(w.t, place)
		// The node is removed in its own network namespace, whether it was killed or not.
		cmd := exec.Command("nsenter", "--net="+place, m.bins["proa"], "down", "--purge", "--now", "--data-dir", data)
		if out, err := cmd.CombinedOutput(); err != nil {
			w.t.Errorf("down --purge of %s: %v\n%s", name, err, out)
		}
		_ = agent.Wait() // however it ended
	})
	killTest{machine: m}.until("the node "+name+" has not joined", func() bool {
		_, err := m.run(w.t.Context(), "kubectl", "get", "node", name)
		return err == nil
	})
	killTest{machine: m}.kubectl("wait", "--for=condition=Ready", "node/"+name, "--timeout=90s")
	if out, err := m.run(w.t.Context(), "proa", append([]string{"images", "load", "--data-dir", data}, images...)...); err != nil {
		w.t.Fatalf("proa images load: %v\n%s", err, out)
	}
}
