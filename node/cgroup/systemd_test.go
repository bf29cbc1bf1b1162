package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// recordingUnits records the calls that would go to systemd.
type recordingUnits struct{ calls []string }

func (h *recordingUnits) Slice(unit string, properties []string) error {
	h.calls = append(h.calls, "slice "+unit+" "+strings.Join(properties, " "))
	return nil
}

func (h *recordingUnits) Stop(unit string) error {
	h.calls = append(h.calls, "stop "+unit)
	return nil
}

func TestSystemd(t *testing.T) {
	tr, h := fakeTree(t, 2), &recordingUnits{}
	tr.Driver, tr.Units = Systemd, h
	if err := tr.Start(corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}); err != nil {
		t.Fatal(err)
	}
	p := readPod(t, "containers: [{name: a, resources: {requests: {cpu: 500m}, limits: {cpu: 500m, memory: 64Mi}}}]")
	parent, err := tr.Ensure(p)
	if err != nil {
		t.Fatal(err)
	}
	if want := "/proa0.slice/proa0-kubepods.slice/proa0-kubepods-burstable.slice/proa0-kubepods-burstable-pod1234_abcd.slice"; parent != want {
		t.Errorf("the group is %s, want %s", parent, want)
	}
	if uids, err := tr.PodUIDs(); err != nil || fmt.Sprint(uids) != "[1234-abcd]" {
		t.Errorf("Pods with cgroups: %v, %v", uids, err)
	}
	// Remove the files of the folder, as the kernel would.
	files, err := filepath.Glob(filepath.Join(tr.Host.Unified, parent, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Remove(p.UID); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"slice proa0.slice ", "slice proa0-kubepods.slice CPUWeight=79 CPUQuota= MemoryMax=1073741824 TasksMax=infinity",
		"slice proa0-kubepods-besteffort.slice CPUWeight=1", "slice proa0-kubepods-burstable.slice CPUWeight=20",
		"slice proa0-kubepods-burstable-pod1234_abcd.slice CPUWeight=20 CPUQuota=50% MemoryMax=67108864", "stop proa0-kubepods-burstable-pod1234_abcd.slice",
	} {
		if !strings.Contains(strings.Join(h.calls, "\n")+"\n", want) {
			t.Errorf("systemd was not called with %q but with\n%s", want, strings.Join(h.calls, "\n"))
		}
	}
}

func TestReserve(t *testing.T) {
	for _, version := range []int{1, 2} {
		tr := fakeTree(t, version)
		list := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
		if err := tr.Reserve("/system", list, All); err == nil {
			t.Error("a cgroup that does not exist is limited")
		}
		for _, c := range []string{"cpu", "memory", "pids"} {
			if err := os.MkdirAll(tr.Host.dir(c, "/system"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := tr.Reserve("/system", list, All); err != nil {
			t.Fatal(err)
		}
		file := map[int]string{1: "memory.limit_in_bytes", 2: "memory.min"}[version]
		if got := readCgroupFile(t, tr, "memory", "/system", file); got != "1073741824" {
			t.Errorf("v%d: %s is %q", version, file, got)
		}
	}
}

func TestReserveCompressible(t *testing.T) {
	tr := fakeTree(t, 1)
	for _, c := range []string{"cpu", "memory", "pids"} {
		if err := os.MkdirAll(tr.Host.dir(c, "/system"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Reserve("/system", corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
		Compressible); err != nil {
		t.Fatal(err)
	}
	if got := readCgroupFile(t, tr, "memory", "/system", "memory.limit_in_bytes"); got != "" {
		t.Errorf("the memory of the cgroup is limited to %s", got)
	}
	if got := readCgroupFile(t, tr, "cpu", "/system", "cpu.shares"); got != "1024" {
		t.Errorf("there are %s shares", got)
	}
}
