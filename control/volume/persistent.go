package volume

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumePlan is what to do about a volume.
type volumePlan struct {
	phase   corev1.PersistentVolumePhase // empty to leave it
	unbind  bool
	reclaim bool
	// toVolume and toClaim are told now.
	toVolume, toClaim []event
}

// decideVolume says what to do about a volume. claim is the one it points at, or nil when that is not there any more.
func decideVolume(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) volumePlan {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" { // unused, or reserved; the claim will come for it
		return volumePlan{phase: corev1.VolumeAvailable}
	}
	switch {
	case claim == nil:
		return release(v)
	case claim.Spec.VolumeName == "":
		if sameMode(v, claim) {
			return volumePlan{} // the claim will come for it
		}
		return volumePlan{
			toVolume: []event{{corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", claim.Name)}},
			toClaim:  []event{{corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", v.Name)}},
		}
	case claim.Spec.VolumeName == v.Name:
		return volumePlan{phase: corev1.VolumeBound}
	case metav1.HasAnnotation(v.ObjectMeta, provisionedBy) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return release(v) // it was made for a claim that has found another
	}
	return volumePlan{unbind: true}
}

// release is for a volume whose claim is gone. That something went wrong before stays to be seen, while it is tried again.
func release(v *corev1.PersistentVolume) volumePlan {
	p := volumePlan{reclaim: true}
	if v.Status.Phase != corev1.VolumeReleased && v.Status.Phase != corev1.VolumeFailed {
		p.phase = corev1.VolumeReleased
	}
	return p
}

// released says that a volume may be reclaimed.
func released(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "" {
		return false
	}
	if claim != nil && claim.UID == v.Spec.ClaimRef.UID {
		return claim.Spec.VolumeName != "" && claim.Spec.VolumeName != v.Name
	}
	return true
}

// deletion is how a volume that is no longer needed goes.
type deletion int

const (
	byOthers deletion = iota // its provisioner deletes it
	byPath                   // its folder is removed
)

// decideDeletion says who deletes a volume, or why nobody can.
func decideDeletion(v *corev1.PersistentVolume) (deletion, error) {
	if name := v.Annotations[provisionedBy]; name != "" {
		switch {
		case !strings.HasPrefix(name, inTree):
			return byOthers, nil
		case name == "kubernetes.io/host-path" && v.Spec.HostPath != nil:
			return byPath, checkPath(v.Spec.HostPath.Path)
		case name == "kubernetes.io/host-path":
			return byOthers, fmt.Errorf("failed to create deleter for volume %q: spec.PersistentVolumeSource.HostPath is nil", v.Name)
		case name == "kubernetes.io/nfs":
			return byOthers, fmt.Errorf("no deletable volume plugin matched")
		}
		return byOthers, fmt.Errorf("no volume plugin matched name: %s", name)
	}
	switch {
	case metav1.HasAnnotation(v.ObjectMeta, migratedTo) || v.Spec.CSI != nil:
		return byOthers, nil
	case v.Spec.HostPath != nil:
		return byPath, checkPath(v.Spec.HostPath.Path)
	case v.Spec.NFS != nil:
		return byOthers, fmt.Errorf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name)
	}
	return byOthers, fmt.Errorf("error getting deleter volume plugin for volume %q: no volume plugin matched", v.Name)
}

// checkPath allows only folders to be removed that are below /tmp.
func checkPath(path string) error {
	if rest, ok := strings.CutPrefix(path, "/tmp/"); !ok || strings.Trim(rest, "/.") == "" || slices.Contains(strings.Split(path, "/"), "..") {
		return fmt.Errorf("host_path deleter only supports /tmp/.+ but received provided %s", path)
	}
	return nil
}

// wantFinalizers are the finalizers that a volume shall have. They concern only volumes that were made by what was once built
// in, and has no driver that took over.
func wantFinalizers(v *corev1.PersistentVolume) []string {
	name, ok := v.Annotations[provisionedBy]
	if !ok {
		return v.Finalizers
	}
	without := func(list []string, name string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(f string) bool { return f == name })
	}
	if _, moved := driverOf(name); moved {
		return without(v.Finalizers, ownFinalizer)
	}
	if !strings.HasPrefix(name, inTree) {
		return v.Finalizers
	}
	out := without(v.Finalizers, externalFinalizer)
	switch deletes := v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete; {
	case deletes && !slices.Contains(out, ownFinalizer):
		out = append(out, ownFinalizer)
	case !deletes:
		out = without(out, ownFinalizer)
	}
	return out
}
