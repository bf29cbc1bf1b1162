package container

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/cgroup"
	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/nodetest"
	"proa.dev/node/pod"
)

var _ pod.Maker = (*Maker)(nil)

// fakeCluster holds the objects that a Maker reads, and records its Events.
type fakeCluster struct {
	maps     map[string]*corev1.ConfigMap
	secrets  map[string]*corev1.Secret
	classes  map[string]string
	services []*corev1.Service
	events   []string
}

func (w *fakeCluster) ConfigMap(_ context.Context, _ *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	if o, ok := w.maps[name]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(gr.ConfigMaps, name)
}

func (w *fakeCluster) Secret(_ context.Context, _ *corev1.Pod, name string) (*corev1.Secret, error) {
	if o, ok := w.secrets[name]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(gr.Secrets, name)
}

func (w *fakeCluster) Get(_ context.Context, on schema.GroupResource, _, name, _ string) (kind.Object, error) {
	if handler, ok := w.classes[name]; ok {
		return &nodev1.RuntimeClass{Handler: handler}, nil
	}
	return nil, apierrors.NewNotFound(on, name)
}

func (w *fakeCluster) Event(_ event.Subject, _, reason, format string, args ...any) {
	w.events = append(w.events, reason+": "+fmt.Sprintf(format, args...))
}

// serviceView is a view of the Services of a fakeCluster.
type serviceView struct {
	client.View
	cluster *fakeCluster
}

func (s serviceView) Get(namespace, name string) (kind.Object, bool) {
	for _, o := range s.cluster.services {
		if o.Namespace == namespace && o.Name == name {
			return o, true
		}
	}
	return nil, false
}

func (s serviceView) List(namespace string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for _, o := range s.cluster.services {
			if o.Namespace == namespace && !yield(o) {
				return
			}
		}
	}
}

func newFakeCluster() *fakeCluster {
	service := func(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
		s.Namespace, s.Name = namespace, name
		return s
	}
	return &fakeCluster{
		maps: map[string]*corev1.ConfigMap{"settings": {Data: map[string]string{"color": "blue", "size": "7", "with.dot": "x"}}},
		secrets: map[string]*corev1.Secret{
			"pass": {Data: map[string][]byte{"word": []byte("s3cret"), "raw": {0xff, 'x'}}},
		},
		classes: map[string]string{"kata": "kata-qemu"},
		services: []*corev1.Service{
			service("default", "kubernetes", "10.96.0.1", corev1.ServicePort{Name: "https", Port: 443, Protocol: "TCP"}),
			service("shop", "my-db", "10.96.0.7", corev1.ServicePort{Port: 53, Protocol: "UDP"}),
			service("shop", "headless", "None", corev1.ServicePort{Port: 80}),
			service("other", "elsewhere", "10.96.0.9", corev1.ServicePort{Port: 80}),
		},
	}
}

func newMaker(t testing.TB, w *fakeCluster, version int) *Maker {
	t.Helper()
	m, err := New(Config{
		Data: t.TempDir(), Refs: w, Cluster: w, Services: serviceView{cluster: w}, Events: w,
		Parent: cgroup.New(cgroup.Config{Root: "proa0"}).Parent,
		NodeIPs: func() []netip.Addr {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
		},
		Allocatable: func() corev1.ResourceList {
			return corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
				"ephemeral-storage": resource.MustParse("100Gi")}
		},
		DNS: DNS{Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Domain: "cluster.local"},
		Limits: Limits{Host: cgroup.Host{Version: version, Pages: []string{"2MB"}, Swap: true}, Memory: 16 << 30, Swap: 4 << 30,
			AllowSwap: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.masked = func() []string { return []string{"/proc/kcore"} }
	return m
}

func readPod(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = "web", "shop", "u-1"
	p.Spec.EnableServiceLinks, p.Spec.DNSPolicy, p.Spec.ServiceAccountName = new(true), corev1.DNSClusterFirst, "robot"
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

var podIPs = []netip.Addr{netip.MustParseAddr("2001:db8::5"), netip.MustParseAddr("10.0.0.5")}

// TestEnv shows the environment of the first container of a Pod.
func TestEnv(t *testing.T) {
	nodetest.Cases(t, "testdata/env.txt", func(t *testing.T, input string) string {
		w := newFakeCluster()
		m, p := newMaker(t, w, 1), readPod(t, input)
		p.Spec.NodeName = "n1"
		dir := filepath.Join(m.PodDir(p.UID), "volumes", "kubernetes.io~empty-dir", "out")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		file := "# made by an init container\nA='one' # first\nB='two\nlines'\n"
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "vars"), []byte(file), 0o600),
			os.Symlink("/etc/passwd", filepath.Join(dir, "bad"))); err != nil {
			t.Fatal(err)
		}
		env, err := m.Env(t.Context(), p, &p.Spec.Containers[0], podIPs)
		if err != nil {
			return strings.ReplaceAll("error: "+err.Error(), m.Data, "DATA")
		}
		var out strings.Builder
		for _, kv := range env {
			fmt.Fprintf(&out, "%s=%q\n", kv.Key, kv.Value)
		}
		return out.String()
	})
}

// TestSandbox shows the sandbox of a Pod.
func TestSandbox(t *testing.T) {
	nodetest.Cases(t, "testdata/sandbox.txt", func(t *testing.T, input string) string {
		w := newFakeCluster()
		m, p := newMaker(t, w, 1), readPod(t, input)
		conf := filepath.Join(m.Data, "resolv.conf")
		if err := os.WriteFile(conf, []byte("nameserver 9.9.9.9\nsearch example.com. cluster.local\noptions edns0 ndots:1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		m.DNS.ResolvConf = conf
		if p.Annotations["servers"] == "none" {
			m.DNS.Servers = nil
		}
		if p.Annotations["resolv"] == "none" {
			m.DNS.ResolvConf = ""
		}
		c, handler, err := m.Sandbox(t.Context(), p, 2)
		if err != nil {
			return "error: " + err.Error()
		}
		var out strings.Builder
		fmt.Fprintf(&out, "%s attempt=%d handler=%q logs=%s\n", c.Hostname, c.Metadata.Attempt, handler,
			strings.TrimPrefix(c.LogDirectory, m.Data))
		fmt.Fprintf(&out, "dns %v %v %v\n", c.DnsConfig.Servers, c.DnsConfig.Searches, c.DnsConfig.Options)
		for _, port := range c.PortMappings {
			fmt.Fprintf(&out, "port %s %d:%d %s\n", port.Protocol, port.HostPort, port.ContainerPort, port.HostIp)
		}
		fmt.Fprintf(&out, "labels %v\n", c.Labels)
		l := c.Linux
		fmt.Fprintf(&out, "parent %s sysctls %v\n", l.CgroupParent, l.Sysctls)
		fmt.Fprintf(&out, "security %s\n", oneLine(l.SecurityContext))
		fmt.Fprintf(&out, "resources %s overhead %s\n", oneLine(l.Resources), oneLine(l.Overhead))
		for _, recorded := range w.events {
			fmt.Fprintln(&out, "event", recorded)
		}
		return out.String()
	})
}

// TestWhatTheRuntimeIsToldIsBounded has a Pod whose annotations, labels, hooks and ports would fill the lists of the runtime.
func TestWhatTheRuntimeIsToldIsBounded(t *testing.T) {
	m := newMaker(t, newFakeCluster(), 1)
	p := readPod(t, "metadata: {name: web, namespace: shop, uid: u-1, annotations: {small: kept}, labels: {app: web}}\n"+
		"spec: {containers: [{name: c, terminationMessagePath: /m}]}")
	p.Annotations["large"] = strings.Repeat("x", 200<<10)
	for i := range 10000 {
		p.Labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("x", 63)
	}
	c := &p.Spec.Containers[0]
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{p.Annotations["large"]}}}}
	c.Ports = slices.Repeat([]corev1.ContainerPort{{ContainerPort: 1}}, 10000)
	box, _, err := m.Sandbox(t.Context(), p, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Container(t.Context(), p, c, pod.Run{Image: &cri.Image{Id: "sha256:123"}})
	if err != nil {
		t.Fatal(err)
	}
	for what, all := range map[string]map[string]string{
		"sandbox labels": box.Labels, "sandbox annotations": box.Annotations, "container annotations": got.Annotations,
	} {
		size := 0
		for k, v := range all {
			size += len(k) + len(v)
		}
		if size > 64<<10 {
			t.Errorf("the %s have %d bytes", what, size)
		}
	}
	if box.Annotations["small"] != "kept" || box.Labels["app"] != "web" || box.Labels[pod.LabelUID] != "u-1" ||
		got.Annotations[annotationMessagePath] != "/m" || got.Annotations[annotationHash] == "" {
		t.Errorf("what is needed is missing: %v %v %v", box.Annotations, len(box.Labels), got.Annotations)
	}
}

// TestContainer shows the runtime's configuration of the first container of a Pod, or of its first init container.
func TestContainer(t *testing.T) {
	nodetest.Cases(t, "testdata/container.txt", func(t *testing.T, input string) string {
		p := readPod(t, input)
		image := &cri.Image{Id: "sha256:123"}
		if user := p.Annotations["image-uid"]; user != "" {
			image.Uid = &cri.Int64Value{}
			if _, err := fmt.Sscan(user, &image.Uid.Value); err != nil {
				t.Fatal(err)
			}
		}
		image.Username = p.Annotations["image-user"]
		version := 1
		if p.Annotations["cgroup"] == "2" {
			version = 2
		}
		w := newFakeCluster()
		m := newMaker(t, w, version)
		c := &p.Spec.Containers[0]
		if len(p.Spec.InitContainers) > 0 {
			c = &p.Spec.InitContainers[0]
		}
		r := pod.Run{Image: image, Attempt: 3, IPs: podIPs[1:], Env: []*cri.KeyValue{{Key: "WHO", Value: []byte("you")}},
			Target: p.Annotations["target"]}
		r.Binds = []*cri.Mount{{HostPath: "/v", ContainerPath: "/data"}}
		got, err := m.Container(t.Context(), p, c, r)
		if err != nil {
			if _, ok := errors.AsType[*fact.Waiting](err); !ok {
				t.Errorf("%v does not become the reason of the waiting state", err)
			}
			return "error: " + err.Error()
		}
		var out strings.Builder
		fmt.Fprintf(&out, "%q %q in %q image %s log %s signal %s\n", got.Command, got.Args, got.WorkingDir, oneLine(got.Image), got.LogPath,
			cri.SignalName(got.StopSignal))
		for _, k := range slices.Sorted(maps.Keys(got.Annotations)) {
			fmt.Fprintf(&out, "%s=%s\n", k, got.Annotations[k])
		}
		for _, mount := range got.Mounts {
			mount.HostPath = strings.TrimPrefix(mount.HostPath, m.Data)
			if strings.Contains(mount.HostPath, "/containers/") {
				mount.HostPath = filepath.Dir(mount.HostPath)
			}
			fmt.Fprintf(&out, "mount %s\n", oneLine(mount))
		}
		s := got.Linux.SecurityContext
		fmt.Fprintf(&out, "namespaces %s\n", oneLine(s.NamespaceOptions))
		s.NamespaceOptions = nil
		fmt.Fprintf(&out, "security %s\n", strings.ReplaceAll(oneLine(s), m.Data, "DATA"))
		unified := got.Linux.Resources.Unified
		got.Linux.Resources.Unified = nil
		fmt.Fprintf(&out, "resources %s unified %v\n", oneLine(got.Linux.Resources), unified)
		return out.String()
	})
}

// oneLine formats a message on one line. The protobuf library adds blanks at random.
func oneLine(m interface{ String() string }) string {
	return strings.Join(strings.Fields(m.String()), " ")
}

func TestHostsFile(t *testing.T) {
	m := newMaker(t, newFakeCluster(), 1)
	p := readPod(t, "spec: {subdomain: sub, hostAliases: [{ip: 1.2.3.4, hostnames: [a, b]}], containers: [{name: a}]}")
	mount, err := m.hosts(p, &p.Spec.Containers[0], podIPs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(mount.HostPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n", "10.0.0.5\tweb.sub.shop.svc.cluster.local\tweb\n",
		"2001:db8::5\tweb.sub",
		"\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	c := &corev1.Container{VolumeMounts: []corev1.VolumeMount{{MountPath: "/etc/hosts"}}}
	if mount, err := m.hosts(p, c, podIPs); mount != nil || err != nil {
		t.Errorf("a container with its own hosts file gets %v, %v", mount, err)
	}
	p.Spec.HostNetwork = true
	if _, err := m.hosts(p, &p.Spec.Containers[0], nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(mount.HostPath); !strings.HasPrefix(string(got), "# Kubernetes-managed hosts file (host network).\n") {
		t.Errorf("on the node's network the file is\n%s", got)
	}
}

func TestUserNamespaces(t *testing.T) {
	m := newMaker(t, newFakeCluster(), 1)
	m.Users.First, m.Users.Count = 65536, 3*65536
	get := func(uid string) (uint32, error) {
		p := readPod(t, "spec: {hostUsers: false}")
		p.UID = types.UID(uid)
		n, err := m.userNamespace(p, "")
		if err != nil {
			return 0, err
		}
		if n.Mode != cri.NamespacePod || len(n.Uids) != 1 || n.Uids[0].HostId != n.Gids[0].HostId || n.Uids[0].Length != 65536 {
			t.Errorf("got %v", n)
		}
		return n.Uids[0].HostId, nil
	}
	seen := map[uint32]bool{}
	for _, uid := range []string{"a", "b", "c"} {
		ids, err := get(uid)
		if err != nil || seen[ids] || ids < 65536 {
			t.Fatalf("%s gets %d, %v", uid, ids, err)
		}
		seen[ids] = true
	}
	if _, err := get("d"); err == nil {
		t.Error("a fourth Pod got ids")
	}
	// After a restart Pods keep their ids; the ids of a removed folder are free.
	next, err := New(m.Config)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := get("b")
	m = next
	if after, err := get("b"); err != nil || after != before {
		t.Errorf("after a restart b has %d, before it had %d: %v", after, before, err)
	}
	if err := os.RemoveAll(m.PodDir("b")); err != nil {
		t.Fatal(err)
	}
	if ids, err := get("d"); err != nil || ids != before {
		t.Errorf("d gets %d, %v; want the former ids of b, %d", ids, err, before)
	}
	if err := os.WriteFile(filepath.Join(m.PodDir("d"), "userns"), []byte(`{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if ids, err := get("d"); err == nil {
		t.Errorf("a file with ids of the host is accepted: %d", ids)
	}
	m.Users.Able = func(string) bool { return false }
	if _, err := get("e"); err == nil || err.Error() != "can't set `spec.hostUsers: false`, runtime does not support user namespaces" {
		t.Errorf("got %v", err)
	}
}

func TestParseUsers(t *testing.T) {
	for text, want := range map[string]string{
		"root:1:2\n": "0 0 false <nil>", "kubelet:65536:131072\n": "65536 131072 true <nil>",
	} {
		first, count, found, err := ParseUsers(text, text, "kubelet")
		if got := fmt.Sprint(first, count, found, err); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if _, _, _, err := ParseUsers("kubelet:1:2\n", "kubelet:1:3\n", "kubelet"); err == nil {
		t.Error("different ranges of users and groups are accepted")
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A) $$(A) $x $( $")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Expand(text, func(name string) string { return "$(" + name + ")" }, len(text))
		if err != nil || !strings.Contains(text, "$$") && got != text {
			t.Errorf("%q becomes %q, %v", text, got, err)
		}
	})
}

// TestExpansionsAreBounded expands variables that refer to variables: without a bound each of these makes gigabytes.
func TestExpansionsAreBounded(t *testing.T) {
	four := func(name string) string { return strings.Repeat("$("+name+")", 4) }
	newPod := func() *corev1.Pod {
		p := readPod(t, "spec: {enableServiceLinks: false, containers: [{name: a}]}")
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "V0", Value: strings.Repeat("x", 4<<10)}}
		for i := 1; i < 10; i++ {
			v := corev1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: four(fmt.Sprintf("V%d", i-1))}
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v)
		}
		return p
	}
	for name, c := range map[string]struct {
		change func(c *corev1.Container)
		want   string
	}{
		"variables": {func(*corev1.Container) {}, `with the variable "V6" the environment has more than the 6291456 bytes that Linux accepts`},
		"one variable": {func(c *corev1.Container) {
			c.Env = append(c.Env[:1], corev1.EnvVar{Name: "W", Value: strings.Repeat("$(V0)", 100_000)})
		}, `with the variable "W" the environment has more than`},
		"command": {func(c *corev1.Container) {
			c.Env, c.Command = c.Env[:4], []string{"sh", strings.Repeat("$(V3)", 1000)}
		}, `with the argument "$(V3)$(V3)`},
		"arguments": {func(c *corev1.Container) {
			c.Env, c.Args = c.Env[:4], slices.Repeat([]string{"$(V3)"}, 1000)
		}, `with the argument "$(V3)" the environment, the command and the arguments have more than the 6291456 bytes`},
		"nothing of it": {func(c *corev1.Container) { c.Env, c.Args = c.Env[:5], []string{"$(V4)"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, p := newMaker(t, newFakeCluster(), 2), newPod()
			first := &p.Spec.Containers[0]
			c.change(first)
			env, err := m.Env(t.Context(), p, first, nil)
			if err == nil {
				_, err = m.Container(t.Context(), p, first, pod.Run{Image: &cri.Image{Id: "i"}, Env: env})
			}
			w, waits := errors.AsType[*fact.Waiting](err)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!waits || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	path := PathExpander([]*cri.KeyValue{{Key: "V", Value: []byte(strings.Repeat("x", 1000))}})
	if got, err := path("$(V)/" + four("V")); err == nil {
		t.Errorf("a path of %d bytes is accepted", len(got))
	}
	if got, err := path("$(V)/$(V)"); err != nil || len(got) != 2001 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// BenchmarkExpandUnclosed expands a text of references that nothing closes; the time grows with its size, not with its square.
func BenchmarkExpandUnclosed(b *testing.B) {
	for _, piece := range []string{"$x", "$("} {
		text := strings.Repeat(piece, 500_000)
		b.Run(piece, func(b *testing.B) {
			for b.Loop() {
				if got, err := Expand(text, func(string) string { return "" }, len(text)); err != nil || got != text {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzEnvFile(f *testing.F) {
	f.Add("A='x'\n#\nB= 'y'\nC='1\n2' # end\n", "C")
	f.Fuzz(func(t *testing.T, text, key string) {
		if value, found, err := envFile(text, key); err != nil && (found || value != "") {
			t.Errorf("both an error and a value: %q, %v", value, err)
		}
	})
}

func TestEnvFile(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"A='x'", `"x" true <nil>`}, {"  A='x'  # c", `"x" true <nil>`}, {"B='1'\nA=''\n", `"" true <nil>`}, {"A= 'x'", `"" true <nil>`},
		{"B='a\nA=no\n'\nA='y'", `"y" true <nil>`}, {"# A='x'\n\n", `"" false <nil>`}, {"A='x'\r\n", `"x" true <nil>`},
		{"A =1", `"" false invalid environment variable format at line 1: whitespace before '=' is not allowed`},
		{"\nA", `"" false invalid environment variable format at line 2: missing '='`},
		{"='x'", `"" false invalid environment variable format at line 1: empty variable name`},
		{"A=x", `"" false invalid environment variable format at line 1: value must be enclosed in single quotes`},
		{"A='x' y", `"" false invalid environment variable format at line 1: unexpected content after closing quote`},
		{"\nA='x\n", `"" false invalid environment variable format starting at line 2: unclosed single quote`},
	} {
		value, found, err := envFile(c.text, "A")
		if got := fmt.Sprintf("%q %v %v", value, found, err); got != c.want {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
}

func TestReadTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var log strings.Builder
	for i := range 100 {
		fmt.Fprintf(&log, "2026-01-01T00:00:00.000000000Z stderr F line %d\n", i)
	}
	log.WriteString("2026-01-01T00:00:00.000000000Z stderr P half, \n2026-01-01T00:00:00.000000000Z stdout F whole\n")
	fallback, file := corev1.TerminationMessageFallbackToLogsOnError, corev1.TerminationMessageReadFile
	if got := ReadTerminationMessage(write("msg", "bye"), fallback, "", 1); got != "bye" {
		t.Errorf("got %q", got)
	}
	if got := ReadTerminationMessage(write("long", strings.Repeat("x", 5000)+"end"), file, "", 0); len(got) != 4096 ||
		!strings.HasSuffix(got, "end") {
		t.Errorf("a long message is %d bytes and ends in %q", len(got), got[len(got)-3:])
	}
	logs, empty := write("log", log.String()), write("empty", "")
	got := ReadTerminationMessage(empty, fallback, logs, 2)
	if lines := strings.Split(got, "\n"); len(lines) > 81 || !strings.HasSuffix(got, "line 99\nhalf, whole\n") ||
		strings.Contains(got, "line 19\n") {
		t.Errorf("got %d lines:\n%s", len(lines), got)
	}
	if got := ReadTerminationMessage(empty, fallback, logs, 0) + ReadTerminationMessage(empty, file, logs, 2); got != "" {
		t.Errorf("the log is read without a reason: %q", got)
	}
	if got := ReadTerminationMessage(empty, fallback,
		write("wide", "2026-01-01T00:00:00.000000000Z stderr F "+strings.Repeat("y", 3000)+"\n"), 2); len(got) != 2048 {
		t.Errorf("a long line is cut to %d bytes", len(got))
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	if got := ReadTerminationMessage(link, file, "", 0); strings.Contains(got, "root:") {
		t.Errorf("a link is followed: %q", got)
	}
	if got := TerminationMessage(&cri.ContainerStatus{
		Message: "oom", ExitCode: 1, LogPath: logs,
		Annotations: map[string]string{annotationMessagePath: "/dev/termination-log", annotationMessagePolicy: string(file)},
		Mounts:      []*cri.Mount{{ContainerPath: "/dev/termination-log", HostPath: filepath.Join(dir, "msg")}},
	}); got != "oom: bye" {
		t.Errorf("got %q", got)
	}
}

func TestTruncateMessages(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 12)}}
	st := &corev1.PodStatus{ContainerStatuses: make([]corev1.ContainerStatus, 1)}
	st.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{Message: strings.Repeat("ä", 1000)}
	TruncateMessages(p, st)
	if got := st.ContainerStatuses[0].State.Terminated.Message; len(got) != 1024 {
		t.Errorf("%d bytes are left", len(got))
	}
}

func TestMaskedPaths(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "cpu0", "thermal_throttle"), 0o755),
		os.MkdirAll(filepath.Join(dir, "cpufreq"), 0o755)); err != nil {
		t.Fatal(err)
	}
	got := maskedPaths(dir)
	if !slices.Contains(got, filepath.Join(dir, "cpu0", "thermal_throttle")) || !slices.Contains(got, "/proc/interrupts") {
		t.Errorf("got %v", got)
	}
}
