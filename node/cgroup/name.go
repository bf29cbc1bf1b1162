package cgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/core/podspec"
)

// Driver says how cgroups are made.
type Driver string

// The drivers, with the names that kubelets and runtimes give them.
const (
	// Cgroupfs makes cgroups as folders.
	Cgroupfs Driver = "cgroupfs"
	// Systemd makes cgroups as slices of systemd; on a machine without systemd, slices are folders with the same names.
	Systemd Driver = "systemd"
)

const (
	allPods   = "kubepods"
	podPrefix = "pod"
)

// name is the path of a cgroup as a list of parts, which each driver writes in its own way.
type name []string

// RootFor returns the cgroup above all cgroups of one agent, so that several clusters can share a machine. It depends
// on the data folder alone, so an agent finds its cgroups again.
func RootFor(dataDir string) string {
	sum := sha256.Sum256([]byte(path.Clean(dataDir)))
	return "proa" + hex.EncodeToString(sum[:4])
}

func (n name) with(part string) name { return append(append(name{}, n...), part) }

// path returns the path of the cgroup below a mount point.
func (n name) path(d Driver) string {
	if d != Systemd {
		return "/" + path.Join(n...)
	}
	// The name of a slice contains all slices above it: a-b.slice is in a.slice.
	out, unit := "/", ""
	for _, part := range n {
		if unit != "" {
			unit += "-"
		}
		unit += strings.ReplaceAll(part, "-", "_")
		out = path.Join(out, unit+".slice")
	}
	return out
}

// unit returns the name of the slice.
func (n name) unit() string { return path.Base(n.path(Systemd)) }

// uidOf returns the Pod's UID from the last part of its cgroup's path.
func uidOf(d Driver, dir string) (types.UID, bool) {
	if d == Systemd {
		unit, ok := strings.CutSuffix(dir, ".slice")
		if !ok {
			return "", false
		}
		dir = strings.ReplaceAll(unit[strings.LastIndex(unit, "-")+1:], "_", "-")
	}
	uid, ok := strings.CutPrefix(dir, podPrefix)
	return types.UID(uid), ok && uid != ""
}

// QOSClass returns the QoS class of a Pod: that of its status, or for a Pod without one, such as a static Pod, the one
// computed from its spec.
func QOSClass(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	return podspec.QOSClass(&p.Spec)
}
