package volume

import (
	"fmt"
	"path"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/fact"
	"proa.dev/node/volume/files"
)

// The bounds of what the author of a Pod makes the agent mount. Each mount is one of the 100,000 that Linux permits.
const (
	maxVolumes      = 500
	maxMounts       = 2000
	maxSubPaths     = 250
	maxSources      = 1000 // of projected volumes
	maxCertificates = 20   // the agent generates a key for each
	// mountsAtATime is how many volumes of a Pod are mounted concurrently.
	mountsAtATime = 64
)

// The bounds of the files of ConfigMaps, Secrets, tokens and fields of a Pod, in bytes. Most of them are stored in memory that counts
// as the agent's.
const (
	maxContents      = 32 << 20 // of a volume
	maxContentsOfPod = 64 << 20
	// freeContents is what every Pod gets, however much others have.
	freeContents = 1 << 20
	// contentsShare is the share of the node's memory that the contents of all Pods may have together.
	contentsShare = 8
	// fallbackContents replaces that share while the node's memory is unknown.
	fallbackContents = 256 << 20
)

// checkCounts refuses a Pod with more volumes than the agent mounts for one.
func checkCounts(p *corev1.Pod, used []*corev1.Volume) error {
	var mounts, subPaths, sources, certificates int
	for c := range fact.AllContainers(p) {
		mounts += len(c.VolumeMounts)
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].SubPath != "" || c.VolumeMounts[i].SubPathExpr != "" {
				subPaths++
			}
		}
	}
	for _, v := range used {
		if v.Projected == nil {
			continue
		}
		sources += len(v.Projected.Sources)
		for i := range v.Projected.Sources {
			if v.Projected.Sources[i].PodCertificate != nil {
				certificates++
			}
		}
	}
	for _, n := range []struct {
		has, most int
		what      string
	}{
		{len(used), maxVolumes, "volumes"}, {mounts, maxMounts, "mounts of volumes"}, {subPaths, maxSubPaths, "mounts with a subPath"},
		{sources, maxSources, "sources of projected volumes"}, {certificates, maxCertificates, "podCertificate sources"},
	} {
		if n.has > n.most {
			return fmt.Errorf("the Pod has %d %s, and a node mounts at most %d for one Pod: use fewer", n.has, n.what, n.most)
		}
	}
	return nil
}

// page is what a file or a folder takes at least, in bytes.
const page = 4096

// sizeOf returns what files take in a volume, in bytes: their data in whole pages, and a page for each folder and each name. It stops
// beyond maxContents.
func sizeOf(all map[string]files.File) (size int64) {
	folders := map[string]bool{".": true, "/": true}
	for p, f := range all {
		size += page + (int64(len(f.Data))+page-1)/page*page
		for dir := path.Dir(path.Clean(p)); !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
			size += page
		}
		if size > maxContents {
			return size
		}
	}
	return size
}

// contentsBudget counts the contents of the volumes of all Pods.
type contentsBudget struct {
	mu       sync.Mutex
	pods     map[types.UID]podContents
	inMemory int64 // of all Pods
}

// podContents are the sizes of the volumes of a Pod, by their names.
type podContents struct {
	volumes       map[string]int64
	all, inMemory int64
}

// take records the size of a volume of a Pod in place of what it had before. node is the number of bytes in memory that all Pods may
// have together. If the size exceeds a bound, the volume keeps what it had.
func (b *contentsBudget) take(uid types.UID, volume string, size int64, on medium, node int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[uid]
	grown := size - p.volumes[volume]
	var inMemoryGrown int64
	if on == inMemory {
		inMemoryGrown = grown
	}
	switch {
	case size > maxContents:
		return fmt.Errorf("its files have more than %d MiB, which a volume of ConfigMaps, Secrets, tokens or fields of the Pod has at most: "+
			"name fewer items, or use a volume of another type", maxContents>>20)
	case p.all+grown > maxContentsOfPod:
		return fmt.Errorf("with it the volumes of the Pod from ConfigMaps, Secrets, tokens and fields have more than %d MiB: "+
			"name fewer items, or use a volume of another type", maxContentsOfPod>>20)
	case inMemoryGrown > 0 && p.inMemory+inMemoryGrown > freeContents && b.inMemory+inMemoryGrown > node:
		return fmt.Errorf("the volumes of this node's Pods from Secrets, tokens and fields have %d MiB of the %d MiB of memory that they "+
			"may have together: delete Pods with large ones, or use another node", b.inMemory>>20, node>>20)
	}
	if p.volumes == nil {
		p.volumes = map[string]int64{}
	}
	p.volumes[volume] = size
	p.all += grown
	p.inMemory += inMemoryGrown
	b.inMemory += inMemoryGrown
	if b.pods == nil {
		b.pods = map[types.UID]podContents{}
	}
	b.pods[uid] = p
	return nil
}

// drop forgets the volumes of a Pod.
func (b *contentsBudget) drop(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inMemory -= b.pods[uid].inMemory
	delete(b.pods, uid)
}

// contentsTmpfs returns the size of a tmpfs for contents, which holds the old files and the new ones while they change.
func contentsTmpfs(p *corev1.Pod, node corev1.ResourceList) int64 {
	if size := memorySize(p, nil, node); size > 0 {
		return min(size, 2*maxContents)
	}
	return 2 * maxContents
}

// contentsOfNode returns the number of bytes in memory that the contents of all Pods may have together.
func contentsOfNode(allocatable corev1.ResourceList) int64 {
	if memory := allocatable.Memory().Value(); memory > 0 {
		return memory / contentsShare
	}
	return fallbackContents
}
