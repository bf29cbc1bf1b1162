package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTwoClustersOnOneMachine runs two clusters with a node each on this machine, which choose their networks themselves, removes one,
// and checks that nothing of it is left and that the other one keeps working.
func TestTwoClustersOnOneMachine(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	first, second := killTest{machine: newMachine(t, bins)}, killTest{machine: newMachine(t, bins)}
	for _, k := range []killTest{first, second} {
		for _, flag := range []string{"--cluster-cidr", "--service-cidr"} {
			at := slices.Index(k.args, flag)
			k.args = slices.Delete(k.args, at, at+2)
		}
		k.web()
	}
	for _, k := range []killTest{first, second} {
		last := ""
		k.until("\"proa status\" reports a problem", func() bool {
			out, err := k.run(t.Context(), "proa", "status", "--data-dir", k.data())
			if err != nil && out != last {
				last = out
				t.Logf("status: %v\n%s", err, out)
			}
			return err == nil
		})
	}
	network := func(k killTest) string { return strings.Join(strings.Split(k.webIP(), ".")[:2], ".") }
	if network(first) == network(second) {
		t.Errorf("both clusters have Pods in %s.0.0/16", network(first))
	}
	made := second.traces()
	for _, what := range []string{"interface", "mount", "cgroup", "process"} {
		if !slices.ContainsFunc(made, func(s string) bool { return strings.HasPrefix(s, what) }) {
			t.Errorf("no %s of the second cluster was found; this test looks in the wrong place", what)
		}
	}
	if out, err := second.run(t.Context(), "proa", "down", "--purge", "--now", "--data-dir", second.data()); err != nil {
		t.Fatalf("down --purge: %v\n%s", err, out)
	}
	var left []string
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(200 * time.Millisecond) {
		left = second.traces()
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("down --purge has left\n%s", strings.Join(left, "\n"))
	}
	if _, err := os.Stat(second.data()); err == nil {
		t.Error("the data folder is left")
	}
	first.answers()
	// A cluster that is stopped ends its containers, and runs its Pods again when it is started.
	ip := first.webIP()
	if out, err := first.run(t.Context(), "proa", "down", "--now", "--data-dir", first.data()); err != nil {
		t.Fatalf("down: %v\n%s", err, out)
	}
	if ask(ip) {
		t.Error("a container runs without its cluster")
	}
	first.up()
	first.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=90s")
	first.answers()
	// A cluster can be created again in the same folder.
	second.up()
	second.kubectl("get", "nodes")
}

const webPod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: memory, emptyDir: {medium: Memory}}]
  containers: [{name: c, image: "proa.test/tool:1", args: [serve], volumeMounts: [{name: memory, mountPath: /m}]}]
`

// web starts the cluster with a Pod that serves HTTP.
func (k killTest) web() {
	k.t.Helper()
	k.up()
	k.load(archives(k.t, "tool"))
	k.must(os.WriteFile(filepath.Join(k.dir, "web.yaml"), []byte(webPod), 0o600))
	k.kubectl("apply", "-f", "web.yaml")
	k.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=90s")
	k.answers()
}

// answers waits until the Pod named web answers.
func (k killTest) answers() {
	k.t.Helper()
	k.until("the Pod does not answer", func() bool { return ask(k.webIP()) })
}

func (k killTest) webIP() string {
	k.t.Helper()
	return k.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
}

// ask reports whether the Pod at an address answers.
func ask(ip string) bool {
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + net.JoinHostPort(ip, "8080") + "/ready")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// traces returns what clusters create on this machine and could leave behind: network interfaces, mounts, cgroups, files,
// nftables tables and processes.
func traces(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	add := func(kind string, names ...string) {
		for _, n := range names {
			out[kind+" "+n] = true
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		add("interface", l.Name)
	}
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	for lines := bufio.NewScanner(table); lines.Scan(); {
		add("mount", strings.Fields(lines.Text())[4])
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/*", "/run/proa/*", "/run/netns/*", "/run/containerd/*", "/var/lib/cni/*",
		"/etc/cni/net.d/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			kind := "file"
			if info, err := os.Stat(n); strings.HasPrefix(n, "/sys/fs/cgroup") {
				if kind = "cgroup"; err != nil || !info.IsDir() {
					continue
				}
			}
			add(kind, n)
		}
	}
	if nft, err := exec.LookPath("nft"); err == nil {
		rules, err := exec.Command(nft, "list", "tables").Output()
		if err != nil {
			t.Fatal(err)
		}
		add("rules", slices.Collect(strings.Lines(string(rules)))...)
	}
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		line, err := os.ReadFile(n)
		if text := string(line); err == nil &&
			(strings.Contains(text, "containerd") || strings.Contains(text, "proa") || strings.HasPrefix(text, "/tool") ||
				strings.HasPrefix(text, "/pause")) {
			add("process", fmt.Sprint(strings.Split(n, "/")[2], " ", strings.ReplaceAll(text, "\x00", " ")))
		}
	}
	return out
}
