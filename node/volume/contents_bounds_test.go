package volume

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/volume/files"
)

func TestContentsBudget(t *testing.T) {
	const node = 100 << 20
	var b contentsBudget
	for _, c := range []struct {
		pod    types.UID
		volume string
		size   int64
		on     medium
		want   string // of the error
	}{
		{"a", "v", maxContents + 1, onDisk, "more than 32 MiB"},
		{"a", "v", 32 << 20, inMemory, ""},
		{"a", "w", 32 << 20, onDisk, ""},
		{"a", "x", 1, onDisk, "with it the volumes of the Pod"},
		{"a", "v", 31 << 20, inMemory, ""}, // it has become smaller, and makes room
		{"a", "x", 1 << 20, inMemory, ""},
		{"b", "v", 32 << 20, inMemory, ""},
		{"b", "w", 32 << 20, inMemory, ""},
		{"c", "v", 5 << 20, inMemory, "have 96 MiB of the 100 MiB"},
		{"c", "v", 5 << 20, onDisk, ""},
		{"d", "v", 1 << 20, inMemory, ""},
		{"e", "v", 4 << 20, inMemory, "have 97 MiB of the 100 MiB"},
		{"e", "v", 3 << 20, inMemory, ""},
		{"f", "v", 1 << 20, inMemory, ""}, // a little is for every Pod
		{"f", "w", 1, inMemory, "have 101 MiB of the 100 MiB"},
		{"e", "v", 2 << 20, inMemory, ""}, // to become smaller is always possible
	} {
		err := b.take(c.pod, c.volume, c.size, c.on, node)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, uid := range []types.UID{"a", "b", "c", "d", "e", "f", "unknown"} {
		b.drop(uid)
	}
	if len(b.pods) != 0 || b.inMemory != 0 {
		t.Errorf("%d Pods and %d bytes are left", len(b.pods), b.inMemory)
	}
}

func TestSizeOf(t *testing.T) {
	deep := map[string]files.File{}
	for i := range 100 {
		deep[strings.Repeat(fmt.Sprint(i, "/"), 300)+"f"] = files.File{}
	}
	for want, all := range map[int64]map[string]files.File{
		0:        {},
		page:     {"empty": {}},
		2 * page: {"a": {Data: []byte("x")}},
		6 * page: {"d/a": {Data: make([]byte, page)}, "d/b": {Data: make([]byte, 1)}, "./d/../c": {}},
	} {
		if got := sizeOf(all); got != want {
			t.Errorf("%v has %d bytes, want %d", all, got, want)
		}
	}
	if got := sizeOf(deep); got < 100*300*page && got <= maxContents {
		t.Errorf("deep folders have %d bytes", got)
	}
}

func TestCheckCounts(t *testing.T) {
	p := &corev1.Pod{}
	projected := corev1.Volume{Name: "p"}
	projected.Projected = &corev1.ProjectedVolumeSource{Sources: make([]corev1.VolumeProjection, maxSources)}
	for i := range maxCertificates {
		projected.Projected.Sources[i].PodCertificate = &corev1.PodCertificateProjection{}
	}
	used := []*corev1.Volume{&projected}
	for len(used) < maxVolumes {
		used = append(used, &corev1.Volume{})
	}
	p.Spec.InitContainers = []corev1.Container{{VolumeMounts: make([]corev1.VolumeMount, maxMounts-maxSubPaths)}}
	p.Spec.Containers = []corev1.Container{{VolumeMounts: make([]corev1.VolumeMount, maxSubPaths)}}
	for i := range maxSubPaths {
		p.Spec.Containers[0].VolumeMounts[i].SubPath = "x"
	}
	if err := checkCounts(p, used); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(p *corev1.Pod, used *[]*corev1.Volume){
		"501 volumes": func(_ *corev1.Pod, used *[]*corev1.Volume) { *used = append(*used, &corev1.Volume{}) },
		"2001 mounts": func(p *corev1.Pod, _ *[]*corev1.Volume) {
			p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1)
			p.Spec.EphemeralContainers[0].VolumeMounts = make([]corev1.VolumeMount, 1)
		},
		"251 mounts with a subPath": func(p *corev1.Pod, _ *[]*corev1.Volume) {
			p.Spec.InitContainers[0].VolumeMounts[0].SubPathExpr = "x"
		},
		"1001 sources": func(_ *corev1.Pod, used *[]*corev1.Volume) {
			(*used)[0].Projected.Sources = append((*used)[0].Projected.Sources, corev1.VolumeProjection{})
		},
		"21 podCertificate": func(_ *corev1.Pod, used *[]*corev1.Volume) {
			(*used)[0].Projected.Sources[maxSources-1].PodCertificate = &corev1.PodCertificateProjection{}
		},
	} {
		p, all := p.DeepCopy(), append([]*corev1.Volume{projected.DeepCopy()}, used[1:]...)
		change(p, &all)
		if err := checkCounts(p, all); err == nil || !strings.HasPrefix(err.Error(), "the Pod has "+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
