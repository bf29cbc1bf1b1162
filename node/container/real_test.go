package container

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/node/cgroup"
	"proa.dev/node/cri"
	"proa.dev/node/nodetest"
	"proa.dev/node/pod"
	"proa.dev/test/images/oci"
)

// TestMain makes the test program the entrypoint of the containers that the tests run.
func TestMain(m *testing.M) {
	if os.Args[0] == "/self" {
		runInContainer(os.Args[1:])
		return
	}
	os.Exit(m.Run())
}

// runInContainer runs the commands of its arguments inside a container, and prints the results.
func runInContainer(args []string) {
	for _, word := range args {
		verb, rest, _ := strings.Cut(word, "=")
		switch verb {
		case "cat":
			text, err := os.ReadFile(rest)
			fmt.Printf("%s%v\n", text, err)
		case "env":
			fmt.Printf("%s=%s\n", rest, os.Getenv(rest))
		case "host":
			name, err := os.Hostname()
			fmt.Println("host", name, err)
		case "status":
			f, err := os.Open("/proc/self/status")
			if err != nil {
				fmt.Println(err)
				continue
			}
			for s := bufio.NewScanner(f); s.Scan(); {
				if key, _, _ := strings.Cut(s.Text(), ":"); strings.Contains("Uid Gid Groups CapEff NoNewPrivs Seccomp", key) {
					fmt.Println(strings.Join(strings.Fields(s.Text()), " "))
				}
			}
			_ = f.Close()
		case "write":
			fmt.Println("write", rest, os.WriteFile(rest, []byte("the end"), 0o644))
		case "sleep":
			time.Sleep(time.Hour)
		case "fail":
			fmt.Println("bye")
			os.Exit(3)
		}
	}
}

// buildImage packs the test program into an image archive whose process runs as a user.
func buildImage(t *testing.T, user string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := elf.NewFile(bytes.NewReader(program)); err != nil {
		t.Fatal(err)
	} else if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Skip("the program of this test needs libraries, which its containers do not have; build it with CGO_ENABLED=0")
	}
	tree := oci.Tree{}
	tree.Put("self", 0o755, program)
	tree.Text("etc/passwd", "root:x:0:0::/:/none\nnobody:x:65534:65534::/:/none\n")
	tree.Text("etc/group", "root:x:0:\nnobody:x:65534:\nextra:x:77:nobody\n")
	tree.Dir(0o777, "tmp", "dev")
	tree.Parents()
	layer, err := tree.Layer()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := oci.Write(f, oci.Image{Names: []string{"test.local/self:1"}, Process: oci.Process{Entrypoint: []string{"/self"}, User: user},
		Layers: []oci.Layer{layer}}); err != nil {
		t.Fatal(err)
	}
	return path
}

// testPod is a Pod with a sandbox on a real runtime.
type testPod struct {
	nodetest.Runtime
	maker *Maker
	tree  *cgroup.Tree
	pod   *corev1.Pod
	box   string
	conf  *cri.PodSandboxConfig
}

func startTestPod(t *testing.T, rt nodetest.Runtime, p *corev1.Pod) *testPod {
	t.Helper()
	host, err := cgroup.FindHost()
	if err != nil {
		t.Fatal(err)
	}
	w := newFakeCluster()
	s := &testPod{Runtime: rt, pod: p,
		tree: cgroup.New(cgroup.Config{Host: host, Root: rt.CgroupRoot, Log: slog.New(slog.DiscardHandler),
			Policy: cgroup.Policy{PodPids: 100}})}
	m := newMaker(t, w, 1)
	m.Data, m.Parent, m.Limits.Host = filepath.Join(rt.Dir, "data"), s.tree.Parent, host
	s.maker = m
	if err := s.tree.Start(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.tree.Ensure(p); err != nil {
		t.Fatal(err)
	}
	conf, handler, err := m.Sandbox(t.Context(), p, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.conf = conf
	if err := os.MkdirAll(conf.LogDirectory, 0o755); err != nil {
		t.Fatal(err)
	}
	made, err := s.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: conf, RuntimeHandler: handler})
	if err != nil {
		t.Fatal(err)
	}
	s.box = made.PodSandboxId
	t.Cleanup(func() {
		if err := s.tree.Remove(p.UID); err != nil {
			t.Error(err)
		}
	})
	return s
}

// startContainer starts a container as the agent does.
func (s *testPod) startContainer(t *testing.T, c *corev1.Container) string {
	t.Helper()
	image, err := s.Images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: c.Image}})
	if err != nil || image.Image == nil {
		t.Fatal("no image", err)
	}
	r := pod.Run{Image: image.Image, IPs: podIPs[1:]}
	if r.Env, err = s.maker.Env(t.Context(), s.pod, c, r.IPs); err != nil {
		t.Fatal(err)
	}
	config, err := s.maker.Container(t.Context(), s.pod, c, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(s.conf.LogDirectory, c.Name), 0o755); err != nil {
		t.Fatal(err)
	}
	made, err := s.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: s.box, Config: config, SandboxConfig: s.conf})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return made.ContainerId
}

// waitForExit waits for the end of a container, and returns its status and output.
func (s *testPod) waitForExit(t *testing.T, id string) (*cri.ContainerStatus, string) {
	t.Helper()
	for t.Context().Err() == nil {
		answer, err := s.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		if st := answer.Status; st.State == cri.ContainerExited {
			log, err := os.ReadFile(st.LogPath)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for line := range strings.Lines(string(log)) {
				_, text, _ := strings.Cut(line, " F ")
				out.WriteString(text)
			}
			return st, out.String()
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the container does not end")
	return nil, ""
}

// TestOnRealRuntime runs containers on a real runtime, and inspects them from inside.
func TestOnRealRuntime(t *testing.T) {
	image := buildImage(t, "nobody")
	rt := nodetest.StartRuntime(t)
	rt.Load(t, image)
	newContainer := func(name string, args ...string) *corev1.Container {
		return &corev1.Container{Name: name, Image: "test.local/self:1", Args: args, TerminationMessagePath: "/dev/termination-log",
			TerminationMessagePolicy: corev1.TerminationMessageReadFile}
	}
	expect := func(t *testing.T, got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("no %q in:\n%s", w, got)
			}
		}
	}
	t.Run("names", func(t *testing.T) {
		s := startTestPod(t, rt, readPod(t, `
metadata: {uid: names}
spec: {hostname: front, subdomain: sub, setHostnameAsFQDN: true, hostAliases: [{ip: 1.2.3.4, hostnames: [other]}], dnsConfig: {options: [{name: ndots, value: "2"}]}, containers: [{name: a}]}`))
		c := newContainer("a", "host", "cat=/etc/hosts", "cat=/etc/resolv.conf", "env=COLOR", "env=KUBERNETES_SERVICE_HOST",
			"write=/dev/termination-log", "fail")
		c.Env = []corev1.EnvVar{{Name: "COLOR",
			ValueFrom: &corev1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
					Key: "color"}}}}
		st, output := s.waitForExit(t, s.startContainer(t, c))
		expect(t, output, "host front.sub.shop.svc.cluster.local", "10.0.0.5\tfront.sub.shop.svc.cluster.local\tfront", "1.2.3.4\tother",
			"nameserver 10.96.0.10", "search shop.svc.cluster.local", "options ndots:2", "COLOR=blue", "KUBERNETES_SERVICE_HOST=10.96.0.1")
		if got := TerminationMessage(st); st.ExitCode != 3 || got != "the end" {
			t.Errorf("it ended with %d and %q", st.ExitCode, got)
		}
		c = newContainer("b", "fail")
		c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		if st, _ := s.waitForExit(t, s.startContainer(t, c)); TerminationMessage(st) != "bye\n" {
			t.Errorf("the termination message is %q", TerminationMessage(st))
		}
	})
	t.Run("identity", func(t *testing.T) {
		s := startTestPod(t, rt, readPod(t, "metadata: {uid: identity}\nspec: {securityContext: {fsGroup: 9, seccompProfile: {type: RuntimeDefault}}, containers: [{name: a}, {name: b, securityContext: {privileged: true}}]}"))
		c := newContainer("a", "status", "write=/tmp/x", "write=/proc/sys/kernel/hostname", "cat=/proc/kcore")
		c.SecurityContext = &corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem: new(true), RunAsGroup: new(int64(5)),
		}
		_, output := s.waitForExit(t, s.startContainer(t, c))
		expect(t, output, "Uid: 65534 65534", "Gid: 5 5", "CapEff: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2",
			"write /tmp/x open /tmp/x: read-only file system")
		if !strings.Contains(output, "9") || !strings.Contains(output, "77") {
			t.Errorf("groups are missing:\n%s", output)
		}
		c = newContainer("b", "status")
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0)), Privileged: new(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
		_, output = s.waitForExit(t, s.startContainer(t, c))
		expect(t, output, "Uid: 0 0", "NoNewPrivs: 0", "Seccomp: 0")
	})
	t.Run("profile", func(t *testing.T) {
		s := startTestPod(t, rt, readPod(t, "metadata: {uid: profile}\nspec: {containers: [{name: a}]}"))
		dir := filepath.Join(s.maker.Data, "seccomp")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["sethostname"], "action": "SCMP_ACT_ERRNO"}]}`
		if err := os.WriteFile(filepath.Join(dir, "mine.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		c := newContainer("a", "status")
		c.SecurityContext = &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost,
			LocalhostProfile: new("mine.json")}}
		_, output := s.waitForExit(t, s.startContainer(t, c))
		expect(t, output, "Seccomp: 2")
	})
	t.Run("users", func(t *testing.T) {
		s := startTestPod(t, rt, readPod(t, "metadata: {uid: users}\nspec: {hostUsers: false, containers: [{name: a}]}"))
		c := newContainer("a", "cat=/proc/self/uid_map", "write=/dev/termination-log", "fail")
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0))}
		st, output := s.waitForExit(t, s.startContainer(t, c))
		expect(t, strings.Join(strings.Fields(output), " "), "0 65536 65536")
		if TerminationMessage(st) != "the end" {
			t.Errorf("the termination message is %q", TerminationMessage(st))
		}
	})
	t.Run("resources", func(t *testing.T) {
		p := readPod(t, "metadata: {uid: resources}\nspec: {containers: [{name: a, resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}}]}")
		s := startTestPod(t, rt, p)
		c := newContainer("a", "sleep")
		c.Resources = p.Spec.Containers[0].Resources
		id := s.startContainer(t, c)
		parent := s.tree.Parent(p)
		podStats, err := s.tree.Host.Stats(parent)
		if err != nil || podStats.Memory.Limit != 64<<20 || podStats.Pids.Limit != 100 || podStats.Pids.Current == 0 {
			t.Errorf("the Pod has %+v, %v", podStats, err)
		}
		containerStats, err := s.tree.Host.Stats(parent + "/" + id)
		if err != nil || containerStats.Memory.Limit != 64<<20 || containerStats.Memory.WorkingSet == 0 || containerStats.CPU.Total == 0 {
			t.Errorf("the container has %+v, %v", containerStats, err)
		}
		// A resize while it runs: the Pod first, then the container.
		c.Resources.Limits["memory"] = resource.MustParse("128Mi")
		p.Spec.Containers[0].Resources = c.Resources
		if err := s.tree.Update(p); err != nil {
			t.Fatal(err)
		}
		if _, err := s.UpdateContainerResources(t.Context(),
			&cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: s.maker.Resources(p, c)}); err != nil {
			t.Fatal(err)
		}
		if containerStats, err = s.tree.Host.Stats(parent + "/" + id); err != nil || containerStats.Memory.Limit != 128<<20 {
			t.Errorf("the container has %+v, %v", containerStats.Memory, err)
		}
		// Removing the cgroup kills its processes.
		if err := s.tree.Remove(p.UID); err != nil {
			t.Fatal(err)
		}
		if st, _ := s.waitForExit(t, id); st.ExitCode != 137 {
			t.Errorf("it ended with %d", st.ExitCode)
		}
	})
}
