package cgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/core"
)

// Driver says who makes groups.
type Driver string

// The drivers, under the names that kubelets and runtimes give them.
const (
	// Cgroupfs makes groups as folders.
	Cgroupfs Driver = "cgroupfs"
	// Systemd asks systemd for slices; where systemd is not the first process, the slices are folders with the same names.
	Systemd Driver = "systemd"
)

const (
	allPods   = "kubepods"
	podPrefix = "pod"
)

// name is a group as a list of parts, which each driver writes in its own way.
type name []string

// RootFor names the group above all groups of one agent, so that several clusters can share a machine. It depends on the
// data folder alone, so an agent finds its groups again.
func RootFor(dataDir string) string {
	sum := sha256.Sum256([]byte(path.Clean(dataDir)))
	return "proa" + hex.EncodeToString(sum[:4])
}

func (n name) with(part string) name { return append(append(name{}, n...), part) }

// path is the group under a mount.
func (n name) path(d Driver) string {
	if d != Systemd {
		return "/" + path.Join(n...)
	}
	// A slice names all slices above it: a-b.slice is in a.slice.
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

// unit is the last part, as systemd names it.
func (n name) unit() string { return path.Base(n.path(Systemd)) }

// uidOf reads the Pod's UID from the last part of the path of its group.
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

// Class is the quality of service of a Pod: what the API server said, or what follows from the spec if it said nothing, as with
// static Pods.
func Class(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	return core.QOS(&p.Spec)
}
