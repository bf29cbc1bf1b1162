package kubeletapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node/cgroup"
	"proa.dev/node/cri"
	"proa.dev/node/fact"
	"proa.dev/node/kubeletapi"
	"proa.dev/node/pod"
	"proa.dev/node/stats"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/test/program"
	"proa.dev/test/upstream"
)

// localRuntime is a fake runtime that runs commands of containers directly on the machine.
type localRuntime struct{ url, dir string }

func (h *localRuntime) ExecURL(_ context.Context, q *cri.ExecRequest) (string, error) {
	v := url.Values{"command": q.Cmd}
	for name, on := range map[string]bool{"input": q.Stdin, "output": q.Stdout, "error": q.Stderr, "tty": q.Tty} {
		if on {
			v.Set(name, "1")
		}
	}
	return h.url + "/?" + v.Encode(), nil
}

func (h *localRuntime) AttachURL(ctx context.Context, q *cri.AttachRequest) (string, error) {
	return h.ExecURL(ctx, &cri.ExecRequest{Cmd: []string{"echo", "attached"}, Stdin: q.Stdin, Stdout: q.Stdout, Stderr: q.Stderr,
		Tty: q.Tty})
}

func (h *localRuntime) LogPath(context.Context, string) (string, error) {
	return "", errors.New("none")
}

func (h *localRuntime) NetworkNamespace(context.Context, string) (string, error) {
	return "/proc/self/ns/net", nil
}

func (h *localRuntime) ExecSync(context.Context, string, []string, time.Duration) ([]byte, int, error) {
	return nil, 0, nil
}

func (h *localRuntime) ExecInContainer(ctx context.Context, _, _, _ string, cmd []string, in io.Reader, out, errs io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	c := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
	c.Dir = h.dir
	c.Stdin, c.Stdout = in, out
	if errs != nil {
		c.Stderr = errs
	}
	err := c.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return utilexec.CodeExitError{Err: e, Code: e.ExitCode()}
	}
	return err
}

func (h *localRuntime) Layers(context.Context) (map[string]stats.Size, error) { return nil, nil }

func (h *localRuntime) Filesystems(context.Context) (images, containers stats.Disk, err error) {
	return stats.Disk{Path: h.dir}, stats.Disk{Path: h.dir}, nil
}

// fakeStats reports the usage of half a CPU and 64 MiB of memory.
type fakeStats struct{ since time.Time }

func (fakeStats) Parent(*corev1.Pod) string { return "/p" }

func (b fakeStats) Stats(string) (cgroup.Usage, error) {
	now := time.Now()
	return cgroup.Usage{Time: now, CPU: cgroup.CPUUsage{Total: uint64(now.Sub(b.since) / 2)},
		Memory: cgroup.MemoryUsage{WorkingSet: 64 << 20}}, nil
}

// onePod lists the Pods of the node.
type onePod []pod.Local

func (o onePod) Pods() []pod.Local { return o }

// startCluster starts a cluster with a node that has one Pod, whose commands run on the machine.
func startCluster(t *testing.T) *proatest.Cluster {
	t.Helper()
	c := proatest.Start(t, proatest.Memory())
	h := &localRuntime{dir: t.TempDir()}
	execServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, r, h, "", "", "", r.URL.Query()["command"], o, time.Minute, time.Minute,
			[]string{remotecommand.StreamProtocolV4Name})
	}))
	t.Cleanup(execServer.Close)
	h.url = execServer.URL
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.1.1"}},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
			corev1.ResourcePods: resource.MustParse("10")},
	}}
	if _, err := c.Client.Create(t.Context(), gr.Nodes, node); err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: new(false),
		}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	_, _ = c.Client.Create(t.Context(), gr.ServiceAccounts, sa) // the controller may have created it
	o, err := c.Client.Create(t.Context(), gr.Pods, p)
	if err != nil {
		t.Fatal(err)
	}
	p = o.(*corev1.Pod)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.2.2.2", PodIPs: []corev1.PodIP{{IP: "10.2.2.2"}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", ContainerID: "x://id", Image: "i", Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}}
	if o, err = c.Client.Update(t.Context(), gr.Pods, p, "status"); err != nil {
		t.Fatal(err)
	}
	p = o.(*corev1.Pod)
	log := filepath.Join(h.dir, "0.log")
	if err := os.WriteFile(log, []byte("2026-01-01T00:00:00Z stdout F first\n2026-01-01T00:00:01Z stderr F second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pods := onePod{{Pod: p, Facts: &fact.Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name,
		Sandboxes:  []fact.Sandbox{{ID: "b", Ready: true}},
		Containers: []fact.Container{{ID: "id", Name: "c", State: fact.Running, Started: time.Now(), LogPath: log}}}}}
	usage := fakeStats{time.Now()}
	statsServer := stats.New(stats.Config{Node: "n", Pods: pods, Groups: usage, Counters: usage, Runtime: h, Dir: h.dir})
	nodeUser := &user.DefaultInfo{Name: "system:node:n", Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	server := kubeletapi.New(kubeletapi.Config{
		Node: "n", Pods: pods, Runtime: h, Client: c.Server.Client(nodeUser), Handlers: statsServer.Handlers(nil, nil),
		Log: slog.New(slog.DiscardHandler),
	})
	name, groups := run.AgentCaller()
	leave, err := c.Server.JoinAgent("n", server.InProcess(kubeletapi.Identity{Username: name, Groups: groups}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	return c
}

// kubectlBinaries returns the kubectls to test with. Building them takes minutes, so it is done only if PROA_BUILD is set,
// as by make packages.
func kubectlBinaries(t *testing.T) map[string]string {
	t.Helper()
	if os.Getenv("PROA_BUILD") == "" {
		bins, err := upstream.Find("kubectl", "kubectl-old")
		if err != nil {
			t.Skipf("left to make packages: %v", err)
		}
		return bins
	}
	bins, err := upstream.Build(t.Context(), "kubectl", "kubectl-old")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("kubectl cannot be built: %v", err)
	}
	if err != nil {
		t.Skipf("kubectl cannot be built here (it is made from modules of the Go proxy): %v", err)
	}
	return bins
}

// TestKubectl runs exec, attach, logs, port-forward and top with a new and an old kubectl, over WebSockets and over SPDY.
func TestKubectl(t *testing.T) {
	bins := kubectlBinaries(t)
	c := startCluster(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the page") }))
	defer page.Close()
	_, port, err := net.SplitHostPort(page.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, bin := range []string{"kubectl", "kubectl-old"} {
		for _, sockets := range []string{"true", "false"} {
			t.Run(bin+" websockets "+sockets, func(t *testing.T) {
				k := kubectl{t: t, bin: bins[bin], env: append(os.Environ(), "KUBECONFIG="+c.Kubeconfig,
					"KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+sockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+sockets)}
				k.want("first\nsecond\n", "logs", "p")
				k.want("second\n", "logs", "p", "--tail=1")
				k.want("2026-01-01T00:00:00.000000000Z first\n", "logs", "p", "--timestamps", "--limit-bytes=37")
				k.want("a b\n", "exec", "p", "--", "echo", "a", "b")
				k.in = "typed"
				k.want("typed", "exec", "-i", "p", "--", "cat")
				k.in = ""
				k.want("command terminated with exit code 7\n", "exec", "p", "--", "sh", "-c", "exit 7")
				k.want("attached\n", "attach", "p")
				big := strings.Repeat("0123456789abcdef", 1<<16)
				k.in = big
				k.want(big, "exec", "-i", "p", "--", "cat")
				k.in = ""
				file := filepath.Join(t.TempDir(), "file")
				if err := os.WriteFile(file, []byte(big), 0o600); err != nil {
					t.Fatal(err)
				}
				k.want("", "cp", file, "p:copy")
				k.want("", "cp", "p:copy", file+"2")
				if got, err := os.ReadFile(file + "2"); err != nil || string(got) != big {
					t.Errorf("the copy of a copy has %d bytes (%v)", len(got), err)
				}
				k.forward("p", port)
			})
		}
	}
	t.Run("top", func(t *testing.T) {
		k := kubectl{t: t, bin: bins["kubectl"], env: append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)}
		if got := k.run("top", "pod", "--no-headers", "-l",
			"app=web"); !regexp.MustCompile(`^p +(4[5-9]\d|5[0-4]\d|500)m +64Mi +\n$`).MatchString(got) {
			t.Errorf("top pod: %q", got)
		}
		if got := k.run("top", "node", "--no-headers"); !regexp.MustCompile(`^n +\d+m +\d+% +\d+Mi +\d+% +\n$`).MatchString(got) {
			t.Errorf("top node: %q", got)
		}
		k.want("ok", "get", "--raw", "/api/v1/nodes/n/proxy/healthz")
		if got := k.run("get", "--raw", "/api/v1/nodes/n/proxy/stats/summary"); !strings.Contains(got, `"nodeName": "n"`) {
			t.Errorf("the summary: %s", got)
		}
	})
}

type kubectl struct {
	t   *testing.T
	bin string
	env []string
	in  string
}

// run returns the output of kubectl. A kubectl before 1.34 reads from its WebSocket before it has created the streams,
// and drops data that arrives in that moment. It prints a message then, and would wait for the data until its timeout of
// a minute. It is killed and started again instead.
func (k *kubectl) run(args ...string) string {
	k.t.Helper()
	out := k.runOnce(args...)
	for range 20 {
		if !strings.Contains(out, dropped) {
			break
		}
		out = k.runOnce(args...)
	}
	return out
}

// dropped is the message of a kubectl that has dropped data.
const dropped = "Unknown stream id "

// killingOutput collects the output of a kubectl, and kills it when it reports that it has dropped data.
type killingOutput struct {
	text bytes.Buffer // not embedded, so that io.Copy uses Write
	kill func()
}

func (o *killingOutput) String() string { return o.text.String() }

func (o *killingOutput) Write(p []byte) (int, error) {
	n, err := o.text.Write(p)
	if bytes.Contains(o.text.Bytes(), []byte(dropped)) {
		o.kill()
	}
	return n, err
}

func (k *kubectl) runOnce(args ...string) string {
	k.t.Helper()
	ctx, stop := context.WithTimeout(k.t.Context(), time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, k.bin, args...)
	cmd.Env, cmd.Stdin = k.env, strings.NewReader(k.in)
	out := &killingOutput{kill: stop}
	cmd.Stdout, cmd.Stderr = out, out
	_ = cmd.Run() // the output is compared
	return out.String()
}

func (k *kubectl) want(want string, args ...string) {
	k.t.Helper()
	if got := k.run(args...); got != want && !strings.HasSuffix(got, "\n"+want) {
		k.t.Errorf("kubectl %s: %.300q, want %.300q", strings.Join(args, " "), got, want)
	}
}

// forward reads a page through a forwarded port, several times at once.
func (k *kubectl) forward(name, port string) {
	k.t.Helper()
	ctx, stop := context.WithCancel(k.t.Context())
	cmd := exec.CommandContext(ctx, k.bin, "port-forward", name, ":"+port)
	cmd.Env = k.env
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer stop()
	first := make([]byte, 200)
	n, err := out.Read(first)
	if err != nil {
		k.t.Errorf("no output of port-forward: %v", err)
		return
	}
	m := regexp.MustCompile(`127.0.0.1:(\d+)`).FindSubmatch(first[:n])
	if m == nil {
		k.t.Errorf("port-forward prints %q", first[:n])
		return
	}
	local, _ := strconv.Atoi(string(m[1]))
	done := make(chan string, 5)
	for range 5 {
		go func() {
			c := &http.Client{Transport: &http.Transport{}}
			resp, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d/", local))
			if err != nil {
				done <- err.Error()
				return
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			done <- string(body)
		}()
	}
	for range 5 {
		if got := <-done; got != "the page" {
			k.t.Errorf("through the forwarded port: %q", got)
		}
	}
}

// TestKubectlThatDroppedDataIsKilled checks that run does not wait for a kubectl that has dropped data.
func TestKubectlThatDroppedDataIsKilled(t *testing.T) {
	dir := t.TempDir()
	text := "#!/bin/sh\nif [ -e " + dir + "/again ]; then echo done; exit; fi\ntouch " + dir +
		"/again\necho 'Unknown stream id 1'\nexec sleep 60\n"
	if err := program.Write(filepath.Join(dir, "kubectl"), []byte(text)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if out := (&kubectl{t: t, bin: filepath.Join(dir, "kubectl")}).run("exec"); out != "done\n" || time.Since(start) > 50*time.Second {
		t.Errorf("the output is %q after %s", out, time.Since(start))
	}
}
