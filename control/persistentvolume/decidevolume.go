package persistentvolume

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumePlan is what to do with a volume.
type volumePlan struct {
	phase   corev1.PersistentVolumePhase // empty for no change
	unbind  bool
	reclaim bool
	// toVolume and toClaim are the Events to record about the volume and its claim.
	toVolume, toClaim []event
}

// decideVolume returns what to do with a volume. claim is the one that its claimRef names; nil if it does not exist.
func decideVolume(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) volumePlan {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" { // free, or reserved for a claim whose reconcile will bind it
		return volumePlan{phase: corev1.VolumeAvailable}
	}
	switch {
	case claim == nil:
		return releasePlan(v)
	case claim.Spec.VolumeName == "":
		if hasSameMode(v, claim) {
			return volumePlan{} // the reconcile of the claim will bind it
		}
		return volumePlan{
			toVolume: []event{{corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", claim.Name)}},
			toClaim:  []event{{corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", v.Name)}},
		}
	case claim.Spec.VolumeName == v.Name:
		return volumePlan{phase: corev1.VolumeBound}
	case metav1.HasAnnotation(v.ObjectMeta, provisionedBy) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return releasePlan(v) // it was provisioned for a claim that is bound to another volume
	}
	return volumePlan{unbind: true}
}

// releasePlan returns the plan for a volume whose claim was deleted. The phase Failed is kept while reclaiming is retried.
func releasePlan(v *corev1.PersistentVolume) volumePlan {
	p := volumePlan{reclaim: true}
	if v.Status.Phase != corev1.VolumeReleased && v.Status.Phase != corev1.VolumeFailed {
		p.phase = corev1.VolumeReleased
	}
	return p
}

// mayReclaim reports whether a volume may be reclaimed.
func mayReclaim(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "" {
		return false
	}
	if claim != nil && claim.UID == v.Spec.ClaimRef.UID {
		return claim.Spec.VolumeName != "" && claim.Spec.VolumeName != v.Name
	}
	return true
}

// deletion is how a released volume is deleted.
type deletion int

const (
	byProvisioner deletion = iota // its provisioner deletes it
	byPath                        // this controller removes its folder
)

// decideDeletion returns how a volume is deleted, or an error if it cannot be.
func decideDeletion(v *corev1.PersistentVolume) (deletion, error) {
	if name := v.Annotations[provisionedBy]; name != "" {
		switch {
		case !strings.HasPrefix(name, inTree):
			return byProvisioner, nil
		case name == "kubernetes.io/host-path" && v.Spec.HostPath != nil:
			return byPath, checkPath(v.Spec.HostPath.Path)
		case name == "kubernetes.io/host-path":
			return byProvisioner, fmt.Errorf("failed to create deleter for volume %q: spec.PersistentVolumeSource.HostPath is nil", v.Name)
		case name == "kubernetes.io/nfs":
			return byProvisioner, fmt.Errorf("no deletable volume plugin matched")
		}
		return byProvisioner, fmt.Errorf("no volume plugin matched name: %s", name)
	}
	switch {
	case metav1.HasAnnotation(v.ObjectMeta, migratedTo) || v.Spec.CSI != nil:
		return byProvisioner, nil
	case v.Spec.HostPath != nil:
		return byPath, checkPath(v.Spec.HostPath.Path)
	case v.Spec.NFS != nil:
		return byProvisioner, fmt.Errorf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name)
	}
	return byProvisioner, fmt.Errorf("error getting deleter volume plugin for volume %q: no volume plugin matched", v.Name)
}

// checkPath returns an error unless a path is below /tmp.
func checkPath(path string) error {
	if rest, ok := strings.CutPrefix(path, "/tmp/"); !ok || strings.Trim(rest, "/.") == "" ||
		slices.Contains(strings.Split(path, "/"), "..") {
		return fmt.Errorf("host_path deleter only supports /tmp/.+ but received provided %s", path)
	}
	return nil
}

// wantFinalizers returns the finalizers that a volume shall have. Only volumes of provisioners that were once built in, and
// have not been replaced by a CSI driver, have one of this controller.
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
