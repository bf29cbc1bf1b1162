package pod_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/pod"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
	"proa.dev/node/runtime"
)

// testManager is a Manager with a real runtime, whose other parts are minimal fakes: Pods use the host network, and run the image
// of the sandbox.
type testManager struct {
	*pod.Manager
	mu       sync.Mutex
	pods     map[types.UID]*corev1.Pod
	events   []string
	failed   map[string]bool // containers whose liveness probe has failed
	revision int
	// missingImages are containers whose image cannot be pulled yet, missingVolumes Pods whose volumes cannot be mounted yet.
	missingImages, missingVolumes map[string]bool
	terminations                  []string // reasons, messages and exit codes of terminated containers in statuses
	records                       *hop.Recorder
	logs                          string // folder
}

func startManager(t *testing.T) *testManager {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "pause"} {
		if _, err := exec.LookPath(filepath.Join(bin, name)); err != nil {
			t.Skipf("%v; run make build", err)
		}
	}
	dir, err := os.MkdirTemp("", "pod-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	config := runtime.Config{DataDir: filepath.Join(dir, "c"), BinDir: bin, CgroupRoot: "/proa-test-" + filepath.Base(dir)}
	r, err := runtime.Start(t.Context(), config, log)
	t.Cleanup(func() {
		if r != nil {
			_ = r.Stop(context.WithoutCancel(t.Context()))
		}
		if err := runtime.Purge(context.WithoutCancel(t.Context()), config, log); err != nil {
			t.Errorf("purge: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	if err != nil {
		t.Fatal(err)
	}
	client, err := cri.Dial(r.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	b := &testManager{pods: map[types.UID]*corev1.Pod{}, failed: map[string]bool{}, missingImages: map[string]bool{},
		missingVolumes: map[string]bool{}, records: hop.NewRecorder(1000), logs: filepath.Join(dir, "logs")}
	b.Manager = pod.New(pod.Config{
		Client: client, Runtime: "containerd", Images: b, Volumes: fakeVolumes{manager: b}, Maker: fakeMaker{dir},
		Cgroups: fakeCgroups(config.CgroupRoot),
		Probes:  b, Hooks: noop{}, Events: b, Statuses: b,
		TerminationMessage: func(*cri.ContainerStatus) string { return "" },
		PathExpander: func([]*cri.KeyValue) func(string) (string, error) {
			return func(path string) (string, error) { return path, nil }
		},
		HostIPs: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.1")} },
		Logs:    b.logs, Log: log, Trace: podtrace.New("n", b.records.Update),
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	return b
}

func (b *testManager) Ensure(ctx context.Context, _ *corev1.Pod, c *corev1.Container, _ *podtrace.Work) (*cri.Image, error) {
	b.mu.Lock()
	missing := b.missingImages[c.Name]
	b.mu.Unlock()
	if missing {
		return nil, &fact.Waiting{Reason: "ErrImagePull", Message: "no such image", After: 10 * time.Millisecond}
	}
	r, err := b.Client.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: c.Image}})
	if err != nil || r.Image == nil {
		return nil, &fact.Waiting{Reason: "ErrImagePull", Message: fmt.Sprint(err)}
	}
	return r.Image, nil
}

func (b *testManager) Sync(*corev1.Pod, *fact.Pod) {}
func (b *testManager) Forget(types.UID)            {}
func (b *testManager) Terminating(types.UID)       {}
func (b *testManager) Of(_ types.UID, id string) podstate.Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := podstate.Health{Started: true, Ready: true}
	if b.failed[id] {
		h.Failed = &podstate.ProbeFailure{Probe: "liveness", Grace: new(int64(0))}
	}
	return h
}

func (b *testManager) Event(about event.Subject, _, reason, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, about.Container+" "+reason+": "+fmt.Sprintf(format, args...))
}

func (b *testManager) Write(_ context.Context, p *corev1.Pod, st *corev1.PodStatus) (*corev1.Pod, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.pods[p.UID].DeepCopy()
	next.Status = *st
	b.revision++
	next.ResourceVersion = fmt.Sprint(b.revision)
	b.pods[p.UID] = next
	for _, c := range st.ContainerStatuses {
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if end != nil {
				b.terminations = append(b.terminations, fmt.Sprintf("%s %s %d", end.Reason, end.Message, end.ExitCode))
			}
		}
	}
	return next, nil
}

func (b *testManager) Delete(_ context.Context, p *corev1.Pod) error {
	b.mu.Lock()
	delete(b.pods, p.UID)
	b.mu.Unlock()
	go b.SourceRemoved(p.UID)
	return nil
}

// apply creates or updates a Pod of the node.
func (b *testManager) apply(p *corev1.Pod) {
	b.mu.Lock()
	b.revision++
	p.ResourceVersion = fmt.Sprint(b.revision)
	b.pods[p.UID] = p
	b.mu.Unlock()
	b.Update(p, nil)
}

// patience is how long tests wait for what must happen: on a busy machine starting or stopping a container may take a second, and some
// Pods have 50.
const patience = 2 * time.Minute

// await waits until a condition of a Pod is true, and fails with the Pod and all Events otherwise.
func (b *testManager) await(t *testing.T, uid types.UID, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		b.mu.Lock()
		p := b.pods[uid]
		b.mu.Unlock()
		if is(p) {
			return p
		}
		if time.Now().After(end) {
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Fatalf("%s: not within %v; the Pod is %.5000s, events %.5000s", what, patience, fmt.Sprintf("%+v", p),
				fmt.Sprintf("%q", b.events))
		}
	}
}

// fakeVolumes mounts at once, except for Pods in missingVolumes.
type fakeVolumes struct {
	noop
	manager *testManager
}

func (v fakeVolumes) Mount(_ context.Context, p *corev1.Pod) error {
	v.manager.mu.Lock()
	defer v.manager.mu.Unlock()
	if v.manager.missingVolumes[p.Name] {
		return errors.New("no such volume")
	}
	return nil
}

// noop implements interfaces of the Manager with methods that do nothing.
type noop struct{}

func (noop) Mount(context.Context, *corev1.Pod) error { return nil }
func (noop) Binds(context.Context, *corev1.Pod, *corev1.Container, func(string) (string, error)) ([]*cri.Mount, []*cri.Device, error) {
	return nil, nil, nil
}
func (noop) Remove(context.Context, types.UID) error      { return nil }
func (noop) Unmount(context.Context, types.UID) error     { return nil }
func (noop) PodUIDs(context.Context) ([]types.UID, error) { return nil, nil }
func (noop) Run(context.Context, *corev1.Pod, *corev1.Container, string, []netip.Addr, *corev1.LifecycleHandler) error {
	return nil
}

type fakeCgroups string

func (g fakeCgroups) Ensure(p *corev1.Pod) (string, error) {
	return string(g) + "/pod" + string(p.UID), nil
}
func (fakeCgroups) Update(*corev1.Pod) error      { return nil }
func (fakeCgroups) Remove(types.UID) error        { return nil }
func (fakeCgroups) PodUIDs() ([]types.UID, error) { return nil, nil }

// fakeMaker makes minimal configurations for the runtime.
type fakeMaker struct{ dir string }

func (m fakeMaker) labels(p *corev1.Pod) map[string]string {
	return map[string]string{pod.LabelName: p.Name, pod.LabelNamespace: p.Namespace, pod.LabelUID: string(p.UID)}
}

func (m fakeMaker) Sandbox(_ context.Context, p *corev1.Pod, attempt uint32) (*cri.PodSandboxConfig, string, error) {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt}, Labels: m.labels(p),
		LogDirectory: filepath.Join(m.dir, "logs", p.Namespace+"_"+p.Name+"_"+string(p.UID)),
		Linux:        &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces(p)}},
	}, "", nil
}

// namespaces returns the namespaces of a Pod: the network of the node, and a PID namespace for each container unless they share one.
func namespaces(p *corev1.Pod) *cri.NamespaceOption {
	if p.Spec.ShareProcessNamespace != nil {
		return &cri.NamespaceOption{Network: cri.NamespaceNode, Pid: cri.NamespacePod}
	}
	return &cri.NamespaceOption{Network: cri.NamespaceNode, Pid: cri.NamespaceContainer}
}

func (fakeMaker) Env(context.Context, *corev1.Pod, *corev1.Container, []netip.Addr) ([]*cri.KeyValue, error) {
	return nil, nil
}
func (fakeMaker) Resources(*corev1.Pod, *corev1.Container) *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}
}
func (fakeMaker) Hash(c *corev1.Container) string { return c.Image }

func (m fakeMaker) Container(_ context.Context, p *corev1.Pod, c *corev1.Container, r pod.Run) (*cri.ContainerConfig, error) {
	labels := m.labels(p)
	labels[pod.LabelContainer] = c.Name
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Name, Attempt: r.Attempt},
		Image:    &cri.ImageSpec{Image: r.Image.Id, UserSpecifiedImage: c.Image}, Command: c.Command, Labels: labels,
		LogPath: fmt.Sprintf("%s/%d.log", c.Name, r.Attempt),
		Linux:   &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces(p)}},
	}, nil
}

func newPod(name string, policy corev1.RestartPolicy) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name + "-uid")},
		Spec: corev1.PodSpec{
			HostNetwork: true, RestartPolicy: policy, TerminationGracePeriodSeconds: new(int64(5)),
			Containers: []corev1.Container{{Name: "c", Image: runtime.PauseImage}},
		},
	}
}

func ready(p *corev1.Pod) bool {
	return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready && p.Status.Phase == corev1.PodRunning
}

// TestPodLifecycle covers the lifecycle of Pods on a real runtime.
func TestPodLifecycle(t *testing.T) {
	b := startManager(t)
	t.Run("start, crash, restart, delete", func(t *testing.T) {
		p := newPod("web", corev1.RestartPolicyAlways)
		b.apply(p)
		first := b.await(t, p.UID, "running, with its Events", func(p *corev1.Pod) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return ready(p) && strings.Join(b.events, "|") == "c Created: Container created|c Started: Container started"
		})
		id := strings.TrimPrefix(first.Status.ContainerStatuses[0].ContainerID, "containerd://")
		b.mu.Lock()
		b.failed[id] = true
		b.mu.Unlock()
		b.Wake(p.UID)
		second := b.await(t, p.UID, "restarted",
			func(p *corev1.Pod) bool { return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })
		if last := second.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil ||
			last.ContainerID != "containerd://"+id {
			t.Errorf("the last termination: %+v", last)
		}
		// It gets more memory without a restart.
		b.mu.Lock()
		more := b.pods[p.UID].DeepCopy()
		b.mu.Unlock()
		more.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		b.apply(more)
		b.await(t, p.UID, "resized", func(p *corev1.Pod) bool {
			limit := p.Status.ContainerStatuses[0].Resources.Limits[corev1.ResourceMemory]
			return limit.Value() == 64<<20 && p.Status.ContainerStatuses[0].RestartCount == 1
		})
		// It fails again, and is in back-off.
		b.mu.Lock()
		b.failed[strings.TrimPrefix(second.Status.ContainerStatuses[0].ContainerID, "containerd://")] = true
		b.mu.Unlock()
		b.Wake(p.UID)
		b.await(t, p.UID, "waits", func(p *corev1.Pod) bool {
			w := p.Status.ContainerStatuses[0].State.Waiting
			return w != nil && w.Reason == "CrashLoopBackOff" &&
				strings.HasPrefix(w.Message, "back-off 10s restarting failed container=c pod=web_ns(")
		})
		if got := strings.Join(b.traceRecords(p.UID), "; "); got !=
			"volumes; sandbox prepare run; pull image of c; pull image of c; container create c start c; container create c start c" {
			t.Errorf("recorded %q", got)
		}
		b.remove(t, p.UID, 5)
		if got := b.stopRecord(t, p.UID); got != "sandbox, volumes" { // its container had ended before
			t.Errorf("recorded %q", got)
		}
	})
	t.Run("the end of a deleted Pod is recorded", func(t *testing.T) { testStopIsRecorded(t, b) })
	t.Run("runs once", func(t *testing.T) {
		p := newPod("once", corev1.RestartPolicyNever)
		p.Spec.ShareProcessNamespace = new(true)
		b.apply(p)
		up := b.await(t, p.UID, "running", ready)
		b.awaitSignalHandlers(t, up)
		id := strings.TrimPrefix(up.Status.ContainerStatuses[0].ContainerID, "containerd://")
		if _, err := b.Client.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 5}); err != nil {
			t.Fatal(err)
		}
		end := b.await(t, p.UID, "ended", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		})
		if st := end.Status.ContainerStatuses[0]; st.State.Terminated == nil || st.RestartCount != 0 ||
			end.Status.Phase != corev1.PodSucceeded {
			t.Errorf("the status after the end: %+v", st)
		}
		b.remove(t, p.UID, 0)
		if got := b.traceRecords(p.UID); strings.Contains(fmt.Sprint(got), hop.Stop) {
			t.Errorf("recorded %q of a Pod that has ended by itself", got)
		}
	})
	t.Run("a command that does not exist", func(t *testing.T) {
		p := newPod("bad", corev1.RestartPolicyAlways)
		p.Spec.Containers[0].Command = []string{"/nothing"}
		b.apply(p)
		b.await(t, p.UID, "waits", func(p *corev1.Pod) bool {
			st := p.Status.ContainerStatuses
			return len(st) == 1 && (st[0].State.Waiting != nil && st[0].State.Waiting.Reason == "RunContainerError" ||
				st[0].LastTerminationState.Terminated != nil && st[0].LastTerminationState.Terminated.ExitCode != 0)
		})
		b.remove(t, p.UID, 0)
	})
	t.Run("deleted while it waits for its image", func(t *testing.T) {
		p := newPod("pull", corev1.RestartPolicyAlways)
		p.Spec.Containers[0].Image = "nowhere/nothing:1"
		b.apply(p)
		b.await(t, p.UID, "waits", func(p *corev1.Pod) bool {
			st := p.Status.ContainerStatuses
			return len(st) == 1 && st[0].State.Waiting != nil && st[0].State.Waiting.Reason == "ErrImagePull"
		})
		b.remove(t, p.UID, 30)
		if got := b.traceRecords(p.UID); !slices.Contains(got, "pull image of c failed: ErrImagePull: <nil>") ||
			strings.Contains(fmt.Sprint(got), "open") {
			t.Errorf("recorded %q", got)
		}
	})
	t.Run("ErrImagePull is cleared when the image is present", func(t *testing.T) { testImageArrives(t, b) })
	t.Run("no StartError of a Pod that ends while it starts", func(t *testing.T) { testEndWhileStarting(t, b) })
	t.Run("Pods of many containers are deleted quickly", func(t *testing.T) { testManyContainers(t, b, 50, 20, nil) })
	t.Run("and those that share a PID namespace", func(t *testing.T) { testManyContainers(t, b, 20, 5, new(true)) })
}

// testImageArrives checks that a Pod that waits for its volumes does not report that it waits for an image that is present.
func testImageArrives(t *testing.T, b *testManager) {
	t.Helper()
	p := newPod("volume", corev1.RestartPolicyAlways)
	p.Spec.Containers[0].Name = "late"
	set := func(unpulled, unmounted bool) {
		b.mu.Lock()
		b.missingImages["late"], b.missingVolumes["volume"] = unpulled, unmounted
		b.mu.Unlock()
		b.RetryNow(p.UID)
	}
	waits := func(reason string) func(p *corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			st := p.Status.ContainerStatuses
			return len(st) == 1 && st[0].State.Waiting != nil && st[0].State.Waiting.Reason == reason
		}
	}
	set(true, true)
	b.apply(p)
	b.await(t, p.UID, "its image is missing", waits("ErrImagePull"))
	set(false, true)
	b.await(t, p.UID, "its volumes are missing", waits("ContainerCreating"))
	if got := b.traceRecords(p.UID); !slices.Contains(got, "volumes open failed: no such volume") {
		t.Errorf("recorded %q", got)
	}
	set(false, false)
	b.await(t, p.UID, "running and recorded", func(p *corev1.Pod) bool {
		got := b.traceRecords(p.UID)
		return ready(p) && len(got) == 4 && !strings.Contains(fmt.Sprint(got), "failed") && !strings.Contains(fmt.Sprint(got), "open")
	})
	b.remove(t, p.UID, 5)
}

// testStopIsRecorded deletes a Pod with a container that ends after SIGTERM, and with one that does not.
func testStopIsRecorded(t *testing.T, b *testManager) {
	t.Helper()
	p := newPod("slow", corev1.RestartPolicyAlways)
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{}}}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "deaf", Image: runtime.PauseImage})
	p.Spec.ShareProcessNamespace = new(true)
	b.apply(p)
	up := b.await(t, p.UID, "running", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 2 && p.Status.ContainerStatuses[0].Ready && p.Status.ContainerStatuses[1].Ready
	})
	b.awaitSignalHandlers(t, up)
	for _, c := range up.Status.ContainerStatuses {
		if c.Name == "deaf" {
			b.suspend(t, strings.TrimPrefix(c.ContainerID, "containerd://"))
		}
	}
	b.remove(t, p.UID, 8) // long enough for c to end on a busy machine
	if got := b.stopRecord(t, p.UID); got != "preStop c, stop c: ended after SIGTERM, with exit code 0, "+
		"stop deaf: killed after the grace period of 8 s, sandbox, volumes" {
		t.Errorf("recorded %q", got)
	}
	for _, r := range b.records.Of(p.UID) {
		if r.Verb == hop.Stop && (r.Wait[hop.Node] < 8*time.Second || r.Took[hop.Node] <= r.Wait[hop.Node] || r.CauseRev != r.Rev) {
			t.Errorf("recorded %+v", r)
		}
	}
}

// awaitSignalHandlers waits until every container of a Pod would exit with code 0 on SIGTERM. A container counts as running before its
// program has begun. The containers must share a PID namespace: pause writes a line then, once it handles signals.
func (b *testManager) awaitSignalHandlers(t *testing.T, p *corev1.Pod) {
	t.Helper()
	for _, c := range p.Spec.Containers {
		file := filepath.Join(b.logs, p.Namespace+"_"+p.Name+"_"+string(p.UID), c.Name, "0.log")
		b.await(t, p.UID, c.Name+" handles signals", func(*corev1.Pod) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "pause should be the first process")
		})
	}
}

// suspend stops the process of a container with SIGSTOP, so that it does not get other signals than SIGKILL.
func (b *testManager) suspend(t *testing.T, id string) {
	t.Helper()
	answer, err := b.Client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Pid int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(answer.Info["info"]), &info); err != nil || info.Pid <= 1 {
		t.Fatalf("%+v %v", info, err)
	}
	if err := syscall.Kill(info.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// stopRecord returns the steps of the record of a Pod's stop with their details.
func (b *testManager) stopRecord(t *testing.T, uid types.UID) string {
	t.Helper()
	var steps []string
	for _, r := range b.records.Of(uid) {
		if r.Verb != hop.Stop {
			continue
		}
		for _, s := range r.Steps {
			steps = append(steps, strings.TrimSuffix(s.Name+": "+s.Detail, ": "))
		}
		if r.Open || r.Error != "" {
			t.Errorf("%+v", r)
		}
	}
	return strings.Join(steps, ", ")
}

// traceRecords returns the records of a Pod with the names of their steps, in the order in which the work is listed in package hop.
func (b *testManager) traceRecords(uid types.UID) (out []string) {
	for _, r := range b.records.Of(uid) {
		line := r.Verb
		for _, s := range r.Steps {
			line += " " + s.Name
		}
		if r.Open {
			line += " open"
		}
		if r.Error != "" {
			line += " failed: " + r.Error
		}
		out = append(out, line)
	}
	order := []string{hop.Volumes, hop.Sandbox, hop.Pull, hop.Container}
	slices.SortStableFunc(out, func(a, b string) int {
		verbOf := func(line string) int { verb, _, _ := strings.Cut(line, " "); return slices.Index(order, verb) }
		return verbOf(a) - verbOf(b)
	})
	return out
}

// testEndWhileStarting checks that a Pod that is deleted, or has run out of its deadline, while the runtime starts its container has no
// StartError. The ends come at many moments of the start.
func testEndWhileStarting(t *testing.T, b *testManager) {
	t.Helper()
	b.mu.Lock()
	b.terminations = nil
	b.mu.Unlock()
	for i := range 6 {
		p := newPod(fmt.Sprintf("early%d", i), corev1.RestartPolicyNever)
		p.Spec.Containers[0].Name = p.Name
		b.apply(p)
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			b.mu.Lock()
			made := slices.Contains(b.events, p.Name+" Created: Container created")
			b.mu.Unlock()
			if made {
				break
			}
			if time.Now().After(end) {
				t.Fatal("its container is not created")
			}
		}
		time.Sleep(time.Duration(8*i) * time.Millisecond)
		b.remove(t, p.UID, 5)
	}
	for i := range 6 {
		p := newPod(fmt.Sprintf("brief%d", i), corev1.RestartPolicyNever)
		p.Spec.ActiveDeadlineSeconds = new(int64(1))
		p.Status.StartTime = new(metav1.NewTime(time.Now().Add(time.Duration(50*i)*time.Millisecond - time.Second)))
		b.apply(p)
		b.await(t, p.UID, "failed", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "DeadlineExceeded"
		})
		b.remove(t, p.UID, 5)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, end := range b.terminations {
		if strings.Contains(end, "StartError") || strings.Contains(end, "context canceled") || strings.HasSuffix(end, " 128") {
			t.Errorf("a container ended as %q", end)
		}
	}
}

// testManyContainers is a regression test: stopping many containers at once stalled in the shim for 10 to 137 seconds. Some of the
// containers ignore their stop signal. TestStopSlots of node/cri
// checks how many are stopped at the same time; this test only that the shim copes with it.
func testManyContainers(t *testing.T, b *testManager, all, deaf int, shared *bool) {
	t.Helper()
	const grace = 2
	p := newPod(fmt.Sprintf("many%d", all), corev1.RestartPolicyAlways)
	p.Spec.ShareProcessNamespace = shared
	p.Spec.Containers = nil
	for i := range all {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: runtime.PauseImage})
	}
	b.apply(p)
	up := b.await(t, p.UID, "running", func(p *corev1.Pod) bool {
		n := 0
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil {
				n++
			}
		}
		return n == all
	})
	for _, c := range up.Status.ContainerStatuses[:deaf] {
		b.suspend(t, strings.TrimPrefix(c.ContainerID, "containerd://"))
	}
	began := time.Now()
	b.remove(t, p.UID, grace)
	t.Logf("%d containers were deleted in %v, %d of them after a grace period of %d s", all, time.Since(began), deaf, grace)
}

// remove deletes a Pod, and waits until its worker and sandboxes are gone.
func (b *testManager) remove(t *testing.T, uid types.UID, grace int64) {
	t.Helper()
	b.mu.Lock()
	p := b.pods[uid].DeepCopy()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Now()), &grace
	b.mu.Unlock()
	b.apply(p)
	b.await(t, uid, "deleted", func(p *corev1.Pod) bool { return p == nil })
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, here := b.Find(uid); !here {
			break
		}
		if time.Now().After(end) {
			t.Fatal("its worker never ended")
		}
	}
	boxes, err := b.Client.ListPodSandbox(t.Context(),
		&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{pod.LabelUID: string(uid)}}})
	if err != nil || len(boxes.Items) > 0 {
		t.Errorf("sandboxes are left: %v %v", boxes, err)
	}
}
