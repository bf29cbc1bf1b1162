package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/core/nodekind"
	"proa.dev/node/cri"
)

// resourceList parses resources such as "cpu=2 memory=1Gi".
func resourceList(t *testing.T, text string) corev1.ResourceList {
	t.Helper()
	out := corev1.ResourceList{}
	for _, w := range strings.Fields(text) {
		name, q, _ := strings.Cut(w, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func formatResources(l corev1.ResourceList) string {
	var out []string
	for name, q := range l {
		out = append(out, string(name)+"="+q.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestResources(t *testing.T) {
	for _, x := range []struct {
		name, have, system, kube, evicting string
		perCore                            int
		huge                               map[int64]int64
		devices                            Devices
		capacity, allocatable              string
	}{
		{
			name: "plain", capacity: "cpu=4 ephemeral-storage=100Gi memory=8Gi pods=110",
			allocatable: "cpu=4 ephemeral-storage=100Gi memory=8Gi pods=110",
		},
		{
			name: "reserved", system: "cpu=500m memory=1Gi", kube: "cpu=250m ephemeral-storage=1Gi",
			evicting:    "memory=100Mi ephemeral-storage=10Gi",
			capacity:    "cpu=4 ephemeral-storage=100Gi memory=8Gi pods=110",
			allocatable: "cpu=3250m ephemeral-storage=89Gi memory=7068Mi pods=110",
		},
		{
			name: "more is reserved than exists", system: "memory=9Gi",
			capacity:    "cpu=4 ephemeral-storage=100Gi memory=8Gi pods=110",
			allocatable: "cpu=4 ephemeral-storage=100Gi memory=0 pods=110",
		},
		{
			name: "pods per core", perCore: 10,
			capacity:    "cpu=4 ephemeral-storage=100Gi memory=8Gi pods=40",
			allocatable: "cpu=4 ephemeral-storage=100Gi memory=8Gi pods=40",
		},
		{
			name: "huge pages are not memory", have: "hugepages-1Gi=1Gi", huge: map[int64]int64{2 << 20: 512},
			capacity:    "cpu=4 ephemeral-storage=100Gi hugepages-2Mi=1Gi memory=8Gi pods=110",
			allocatable: "cpu=4 ephemeral-storage=100Gi hugepages-2Mi=1Gi memory=7Gi pods=110",
		},
		{
			name: "resources of others are kept, those of removed plugins become zero", have: "example.com/a=3 example.com/gone=2",
			devices: Devices{Capacity: resourceList(t, "example.com/gpu=4"), Allocatable: resourceList(t, "example.com/gpu=3"),
				Removed: []corev1.ResourceName{"example.com/gone"}},
			capacity:    "cpu=4 ephemeral-storage=100Gi example.com/a=3 example.com/gone=0 example.com/gpu=4 memory=8Gi pods=110",
			allocatable: "cpu=4 ephemeral-storage=100Gi example.com/a=3 example.com/gone=0 example.com/gpu=3 memory=8Gi pods=110",
		},
		{
			name: "device plugins are reset", have: "example.com/a=3", devices: Devices{Reset: true},
			capacity:    "cpu=4 ephemeral-storage=100Gi example.com/a=0 memory=8Gi pods=110",
			allocatable: "cpu=4 ephemeral-storage=100Gi example.com/a=0 memory=8Gi pods=110",
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			st := &corev1.NodeStatus{Capacity: resourceList(t, x.have), Allocatable: resourceList(t, x.have)}
			c := &Config{SystemReserved: resourceList(t, x.system), KubeReserved: resourceList(t, x.kube), PodsPerCore: x.perCore}
			f := &Facts{Machine: Machine{CPUs: 4, Memory: 8 << 30, HugePages: x.huge}, Storage: 100 << 30, Devices: x.devices}
			f.Evicting = func(corev1.ResourceList) corev1.ResourceList { return resourceList(t, x.evicting) }
			resources(st, c, f)
			if got := formatResources(st.Capacity); got != x.capacity {
				t.Errorf("capacity\ngot  %s\nwant %s", got, x.capacity)
			}
			if got := formatResources(st.Allocatable); got != x.allocatable {
				t.Errorf("allocatable\ngot  %s\nwant %s", got, x.allocatable)
			}
		})
	}
}

func eventTexts(news []nodeEvent) (out []string) {
	for _, n := range news {
		out = append(out, n.kind+" "+n.reason+": "+n.text)
	}
	return out
}

func TestConditions(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	c := &Config{Name: "n"}
	f := &Facts{Machine: Machine{CPUs: 1, Memory: 1 << 30, BootID: "a"}, Storage: 1 << 30, Pressed: map[corev1.NodeConditionType]string{}}
	step := func(want string) {
		t.Helper()
		now = now.Add(time.Minute)
		news := describe(o, c, f, now)
		var got []string
		for _, x := range o.Status.Conditions {
			got = append(got, fmt.Sprintf("%s=%s %s: %s (%s)", x.Type, x.Status, x.Reason, x.Message,
				x.LastTransitionTime.Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))))
		}
		if got := strings.Join(append(got, eventTexts(news)...), "\n"); got != strings.TrimSpace(want) {
			t.Errorf("got\n%s\nwant\n%s", got, strings.TrimSpace(want))
		}
	}
	f.Trouble = []error{errors.New("container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized")}
	step(`
MemoryPressure=False KubeletHasSufficientMemory: kubelet has sufficient memory available (1m0s)
DiskPressure=False KubeletHasNoDiskPressure: kubelet has no disk pressure (1m0s)
PIDPressure=False KubeletHasSufficientPID: kubelet has sufficient PID available (1m0s)
Ready=False KubeletNotReady: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized (1m0s)
Normal NodeHasSufficientMemory: Node n status is now: NodeHasSufficientMemory
Normal NodeHasNoDiskPressure: Node n status is now: NodeHasNoDiskPressure
Normal NodeHasSufficientPID: Node n status is now: NodeHasSufficientPID`)
	f.Trouble = nil
	f.Pressed[corev1.NodeMemoryPressure] = "memory.available was 1 of 2"
	step(`
MemoryPressure=True KubeletHasInsufficientMemory: kubelet has insufficient memory available: memory.available was 1 of 2 (2m0s)
DiskPressure=False KubeletHasNoDiskPressure: kubelet has no disk pressure (1m0s)
PIDPressure=False KubeletHasSufficientPID: kubelet has sufficient PID available (1m0s)
Ready=True KubeletReady: kubelet is posting ready status (2m0s)
Normal NodeHasInsufficientMemory: Node n status is now: NodeHasInsufficientMemory
Normal NodeReady: Node n status is now: NodeReady`)
	f.Machine.BootID, f.Storage = "b", 0
	delete(o.Status.Capacity, corev1.ResourceEphemeralStorage)
	delete(f.Pressed, corev1.NodeMemoryPressure)
	f.Trouble = []error{errors.New("container runtime is down"), errors.New("PLEG is not healthy: slow")}
	step(`
MemoryPressure=False KubeletHasSufficientMemory: kubelet has sufficient memory available (3m0s)
DiskPressure=False KubeletHasNoDiskPressure: kubelet has no disk pressure (1m0s)
PIDPressure=False KubeletHasSufficientPID: kubelet has sufficient PID available (1m0s)
Ready=False KubeletNotReady: [container runtime is down, PLEG is not healthy: slow, missing node capacity for resources: ephemeral-storage] (3m0s)
Warning Rebooted: Node n has been rebooted, boot id: b
Normal NodeHasSufficientMemory: Node n status is now: NodeHasSufficientMemory
Normal NodeNotReady: Node n status is now: NodeNotReady`)
}

func TestHeartbeatIsNoStatusChange(t *testing.T) {
	f := &Facts{Machine: Machine{CPUs: 1}}
	o := &corev1.Node{}
	describe(o, &Config{}, f, time.Unix(1, 0))
	next := o.DeepCopy()
	describe(next, &Config{}, f, time.Unix(2, 0))
	if statusDiffers(&o.Status, &next.Status) {
		t.Error("a heartbeat counts as a change")
	}
	f.Machine.CPUs = 2
	describe(next, &Config{}, f, time.Unix(2, 0))
	if !statusDiffers(&o.Status, &next.Status) {
		t.Error("another processor does not count as a change")
	}
}

func TestImages(t *testing.T) {
	f := &Facts{Runtime: runtimeInfo{images: []*cri.Image{
		{Id: "a", Size: 1, RepoTags: []string{"small:1"}},
		{Id: "b", Size: 9, RepoDigests: []string{"big@d"}, RepoTags: []string{"big:1", "big:2", "big:3", "big:4", "big:5"}},
		{Id: "c", Size: 5, RepoTags: []string{"middle:1"}},
	}}}
	got := fmt.Sprint(images(f, 2))
	if want := "[{[big@d big:1 big:2 big:3 big:4] 9} {[middle:1] 5}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := len(images(f, -1)); n != 3 {
		t.Errorf("%d images without a limit", n)
	}
}

func TestHost(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/meminfo": "MemTotal:       16384 kB\nMemFree: 1 kB\nSwapTotal:  1024 kB\n", "sys/devices/system/cpu/online": "0-2,8\n",
		"proc/sys/kernel/random/boot_id": "boot\n", "proc/sys/kernel/osrelease": "6.1.0\n",
		"etc/os-release": "NAME=x\nPRETTY_NAME=\"An OS 12\"\n",
		"etc/machine-id": "mid\n", "sys/class/dmi/id/product_uuid": "uuid\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "7\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := Machine{
		CPUs: 4, Memory: 16 << 20, Swap: 1 << 20, HugePages: map[int64]int64{2 << 20: 7}, MachineID: "mid", SystemUUID: "uuid",
		BootID: "boot", Kernel: "6.1.0", OS: "An OS 12",
	}
	if got, err := (&Host{Root: root}).Machine(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	here, err := (&Host{}).Machine()
	if err != nil || here.CPUs < 1 || here.Memory < 1<<20 || here.Kernel == "" || here.BootID == "" {
		t.Errorf("this machine: %+v", here)
	}
}

// TestMachineIsNotEmptiedByAFailedRead lets the files of a machine become unreadable: its capacity stays as it was.
func TestMachineIsNotEmptiedByAFailedRead(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "proc/meminfo")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("MemTotal: 16384 kB\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	n := &Node{Config: Config{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, Parts: Parts{Runtime: deadRuntime{}},
		host: &Host{Root: root}, log: slog.New(slog.DiscardHandler)}
	before := n.gatherFacts(t.Context()).Machine
	if before.Memory != 16<<20 {
		t.Fatalf("the machine is %+v", before)
	}
	for _, breakFile := range []func() error{
		func() error { return os.WriteFile(file, nil, 0o600) },                      // nothing is read
		func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }, // EISDIR stands for EMFILE
		func() error { return os.Remove(file) },                                     // it is away
	} {
		if err := breakFile(); err != nil {
			t.Fatal(err)
		}
		if now := n.gatherFacts(t.Context()).Machine; !reflect.DeepEqual(now, before) {
			t.Errorf("the machine is now %+v", now)
		}
	}
}

// deadRuntime is a runtime that does not answer.
type deadRuntime struct{ Runtime }

func (deadRuntime) Status(context.Context) (*cri.StatusResponse, error) {
	return nil, errors.New("dead")
}

func TestReconcileLabels(t *testing.T) {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelHostname: "old", "mine": "x",
		corev1.LabelTopologyZone: "z"}, Annotations: map[string]string{nodekind.BuildAnnotation: "v1", "mine": "x"}}}
	n := Node{Config: Config{Build: "v2"}}
	if !reconcile(o, map[string]string{corev1.LabelHostname: "new", "mine": "y", corev1.LabelTopologyZone: ""}, n.annotations()) {
		t.Error("no change is reported")
	}
	if want := map[string]string{corev1.LabelHostname: "new", "mine": "x"}; !reflect.DeepEqual(o.Labels, want) {
		t.Errorf("labels %v, want %v", o.Labels, want)
	}
	want := map[string]string{attachAnnotation: "true", nodekind.BuildAnnotation: "v2", "mine": "x"}
	if !reflect.DeepEqual(o.Annotations, want) {
		t.Errorf("annotations %v, want %v", o.Annotations, want)
	}
	if reconcile(o, map[string]string{corev1.LabelHostname: "new"}, n.annotations()) {
		t.Error("a change is reported again")
	}
}

// TestFoundAddressIsKept checks that a node keeps the address that was found as long as the machine has it.
func TestFoundAddressIsKept(t *testing.T) {
	has, found := "192.0.2.1/24", "192.0.2.1"
	n := &Node{Config: Config{Name: "n", Hostname: "n", FindAddress: func() (netip.Addr, error) { return netip.ParseAddr(found) }},
		host: &Host{
			Addresses: func() ([]net.Addr, error) {
				ip, network, err := net.ParseCIDR(has)
				return []net.Addr{&net.IPNet{IP: ip, Mask: network.Mask}}, err
			},
		}}
	for _, x := range [][3]string{
		{"192.0.2.1/24", "192.0.2.1", "192.0.2.1"},  // it is found
		{"192.0.2.1/24", "192.0.2.9", "192.0.2.1"},  // another one would be found now, but the machine still has the first
		{"192.0.2.9/24", "192.0.2.9", "192.0.2.9"},  // the machine no longer has it
		{"198.51.100.1/24", "nothing", "192.0.2.9"}, // no address is found: the last one is kept
	} {
		has, found = x[0], x[1]
		if got, err := n.addresses(); err != nil || got[0].Address != x[2] {
			t.Errorf("%v: got %v, %v", x, got, err)
		}
	}
}
