package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killRounds is the number of kills.
const killRounds = 20

// TestNodeKilled kills the server, the agent, the container runtime, and all of them, at random moments while Pods start and stop, and
// checks that running containers keep running, none is started twice, deleted Pods are removed, and all Pods are Ready in the end.
func TestNodeKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t, needNode(t))
	m.up()
	m.load(archives(t, "tool"))
	k := killTest{machine: m, counts: filepath.Join(m.dir, "counts"), rand: rand.New(rand.NewPCG(7, uint64(os.Getpid())))}
	m.must(os.Mkdir(k.counts, 0o777))
	k.create("stable", 3)
	k.ready("stable", 3)
	before := k.containers("stable")

	victims := []string{"server", "containerd", "agent", "all"}
	for i := range killRounds {
		k.create(fmt.Sprintf("batch%d", i), 2)
		if i > 0 {
			k.delete(fmt.Sprintf("batch%d", i-1))
		}
		time.Sleep(time.Duration(k.rand.IntN(1200)) * time.Millisecond)
		k.kill(victims[i%len(victims)])
		m.up()
	}
	last := fmt.Sprintf("batch%d", killRounds-1)
	k.ready(last, 2)
	k.ready("stable", 3)
	k.until("something runs that no Pod wants", func() bool { return k.running() == 5 })
	k.checkStartedOnce()
	k.release()
	k.until("the deleted Pods are still there", func() bool { return len(k.pods("")) == 5 })
	if after := k.containers("stable"); after != before {
		t.Errorf("containers that ran did not keep running:\n%s\nbefore, now\n%s", before, after)
	}
	for _, dir := range []string{"node/pods", "node/logs/pods"} {
		k.until("folders of Pods that are gone are left in "+dir, func() bool {
			left, err := os.ReadDir(filepath.Join(m.data(), dir))
			return err == nil && len(left) == 5
		})
	}
}

// killTest kills processes of a cluster.
type killTest struct {
	*machine
	counts string // a folder with a file for each Pod, that counts its starts
	rand   *rand.Rand
}

// keep is the finalizer that keeps deleted Pods, so that their restarts can be read in the end.
const keep = "proa.test/keep"

// create creates Pods that count how often they are started.
func (k killTest) create(app string, n int) {
	k.t.Helper()
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[2]d, labels: {app: %[1]s}, finalizers: [%[4]s]}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: counts, hostPath: {path: %[3]s}}, {name: config, configMap: {name: kube-root-ca.crt}}]
  containers:
  - {name: c, image: "proa.test/tool:1", args: [flaky, "-file=/counts/%[1]s-%[2]d", "-fail=0"], volumeMounts: [{name: counts, mountPath: /counts}, {name: config, mountPath: /config}]}
`, app, i, k.counts, keep)
	}
	file := filepath.Join(k.dir, app+".yaml")
	k.must(os.WriteFile(file, []byte(all.String()), 0o600))
	k.kubectl("apply", "-f", file)
}

func (k killTest) delete(app string) {
	k.t.Helper()
	k.kubectl("delete", "pod", "-l", "app="+app, "--wait=false")
}

// release removes the finalizer of all Pods.
func (k killTest) release() {
	k.t.Helper()
	for _, p := range k.pods("") {
		k.kubectl("patch", "pod", p.Metadata.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	}
}

func (k killTest) kubectl(args ...string) string {
	k.t.Helper()
	out, err := k.run(k.t.Context(), "kubectl", args...)
	if err != nil {
		k.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return out
}

func (k killTest) ready(app string, n int) {
	k.t.Helper()
	k.kubectl("wait", "--for=condition=Ready", "pod", "-l", "app="+app, "--timeout=90s")
	if have := len(k.pods(app)); have != n {
		k.t.Fatalf("%d Pods %s, want %d", have, app, n)
	}
}

// podOf has the fields of a Pod that the test uses.
type podOf struct {
	Metadata struct{ Name string }
	Status   struct {
		ContainerStatuses []struct {
			ContainerID  string
			RestartCount int
		}
	}
}

func (k killTest) pods(app string) []podOf {
	k.t.Helper()
	args := []string{"get", "pods", "-o", "json"}
	if app != "" {
		args = append(args, "-l", "app="+app)
	}
	var list struct{ Items []podOf }
	k.must(json.Unmarshal([]byte(k.kubectl(args...)), &list))
	return list.Items
}

// containers returns the containers of Pods and their restarts.
func (k killTest) containers(app string) string {
	k.t.Helper()
	var out strings.Builder
	for _, p := range k.pods(app) {
		for _, c := range p.Status.ContainerStatuses {
			fmt.Fprintln(&out, p.Metadata.Name, c.ContainerID, c.RestartCount)
		}
	}
	return out.String()
}

// kill kills processes with SIGKILL.
func (k killTest) kill(what string) {
	k.t.Helper()
	var pids []int
	if what == "server" || what == "all" {
		pids = append(pids, k.pid())
	}
	if what == "agent" || what == "all" {
		// One that was killed before may not have a successor yet.
		k.until("there is no agent to kill", func() bool {
			found := k.processes(k.bins["proa"], "--beside-server")
			found = slices.DeleteFunc(found, func(pid int) bool { return !slices.Contains(k.processes(k.bins["proa"], k.data()), pid) })
			pids = append(pids, found...)
			return len(found) > 0
		})
	}
	if what == "containerd" || what == "all" {
		// The one that was killed last may not have a successor yet; with the server it need not have one.
		k.until("there is no containerd to kill", func() bool {
			found := k.processes(filepath.Join(filepath.Dir(k.bins["proa"]), "containerd"), k.data())
			pids = append(pids, found...)
			return len(found) > 0 || what == "all"
		})
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			k.t.Fatal(err)
		}
	}
	k.until("a killed process is still there", func() bool {
		for _, pid := range pids {
			if state(pid) != "" {
				return false
			}
		}
		return what == "containerd" || what == "agent" || k.isDown() // the threads of a zombie, and their sockets, may end a little later
	})
}

// isDown reports whether nothing listens at the cluster's address.
func (k killTest) isDown() bool {
	l, err := net.Listen("tcp", k.address)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// processes returns the processes of a program whose command line contains a text.
func (k killTest) processes(program, text string) (out []int) {
	k.t.Helper()
	entries, err := os.ReadDir("/proc")
	k.must(err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.HasPrefix(string(line), program+"\x00") && strings.Contains(string(line), text) {
			out = append(out, pid)
		}
	}
	return out
}

// state returns the state of a process as ps shows it, or "" if it has ended.
func state(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	if s, _, _ := strings.Cut(rest, " "); s != "Z" {
		return s
	}
	return ""
}

// checkStartedOnce checks that each Pod that ever ran was started once, but for the restarts that its status shows, which is written
// after a restart. A container that was made and could not be started, because the runtime was killed, counts as one of these too.
func (k killTest) checkStartedOnce() {
	k.t.Helper()
	wrong := k.startedTooOften()
	for deadline := time.Now().Add(waitLimit); len(wrong) > 0 && time.Now().Before(deadline); wrong = k.startedTooOften() {
		time.Sleep(100 * time.Millisecond)
	}
	for _, text := range wrong {
		k.t.Error(text)
	}
}

// startedTooOften returns a text for each Pod that was started more often than its status shows.
func (k killTest) startedTooOften() (wrong []string) {
	k.t.Helper()
	restarts := map[string]int{}
	for _, p := range k.pods("") {
		for _, c := range p.Status.ContainerStatuses {
			restarts[p.Metadata.Name] += c.RestartCount
		}
	}
	files, err := os.ReadDir(k.counts)
	k.must(err)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(k.counts, f.Name()))
		k.must(err)
		if n, _ := strconv.Atoi(strings.TrimSpace(string(data))); n > 1+restarts[f.Name()] {
			wrong = append(wrong, fmt.Sprintf("Pod %s was started %d times and shows %d restarts", f.Name(), n, restarts[f.Name()]))
		}
	}
	return wrong
}

// running counts the running containers of the test by the folder that all of them mount.
func (k killTest) running() (n int) {
	for _, pid := range k.processes("/tool", "-file=/counts/") {
		root := fmt.Sprintf("/proc/%d/root/counts", pid)
		a, err := os.Stat(root)
		b, err2 := os.Stat(k.counts)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		k.must(err2)
		if err == nil && os.SameFile(a, b) {
			n++
		}
	}
	return n
}

func (k killTest) until(otherwise string, done func() bool) {
	k.t.Helper()
	for deadline := time.Now().Add(waitLimit); !done(); {
		if time.Now().After(deadline) {
			k.t.Fatal(otherwise)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
