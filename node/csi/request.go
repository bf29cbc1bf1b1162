package csi

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/volume"
)

// source describes a volume to its driver, for inline and persistent volumes alike.
type source struct {
	driver, handle string
	fsType         string
	attributes     map[string]string
	mode           corev1.PersistentVolumeAccessMode
	options        []string
	life           storagev1.VolumeLifecycleMode
	stageSecret    *corev1.SecretReference
	publishSecret  *corev1.SecretReference
	expandSecret   *corev1.SecretReference
}

// sourceOf makes the source of a volume.
func sourceOf(v *volume.DriverVolume) source {
	if s := v.Inline; s != nil {
		out := source{
			driver: s.Driver, handle: inlineHandle(v.Pod.UID, v.Name), attributes: s.VolumeAttributes,
			mode: corev1.ReadWriteOnce, life: storagev1.VolumeLifecycleEphemeral,
		}
		if s.FSType != nil {
			out.fsType = *s.FSType
		}
		if s.NodePublishSecretRef != nil {
			out.publishSecret = &corev1.SecretReference{Namespace: v.Pod.Namespace, Name: s.NodePublishSecretRef.Name}
		}
		return out
	}
	s := v.PV.Spec.CSI
	out := source{
		driver: s.Driver, handle: s.VolumeHandle, fsType: s.FSType, attributes: s.VolumeAttributes,
		mode: corev1.ReadWriteOnce, options: v.PV.Spec.MountOptions, life: storagev1.VolumeLifecyclePersistent,
		stageSecret: s.NodeStageSecretRef, publishSecret: s.NodePublishSecretRef, expandSecret: s.NodeExpandSecretRef,
	}
	if len(v.PV.Spec.AccessModes) > 0 {
		out.mode = v.PV.Spec.AccessModes[0]
	}
	return out
}

// inlineHandle returns the volume handle of an inline volume.
func inlineHandle(uid types.UID, name string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(uid)+name)))
}

// attachment returns the name of the VolumeAttachment of a volume and a node.
func attachment(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// podInfo returns the attributes of a Pod that drivers get if they ask for them.
func podInfo(p *corev1.Pod, life storagev1.VolumeLifecycleMode) map[string]string {
	return map[string]string{
		"csi.storage.k8s.io/pod.name":            p.Name,
		"csi.storage.k8s.io/pod.namespace":       p.Namespace,
		"csi.storage.k8s.io/pod.uid":             string(p.UID),
		"csi.storage.k8s.io/serviceAccount.name": p.Spec.ServiceAccountName,
		"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(life == storagev1.VolumeLifecycleEphemeral),
	}
}

// union returns the union of two maps, and changes neither.
func union(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// capability returns how a volume is to be used, in terms of CSI.
func capability(s source, block, multi bool, group *int64) *spec.VolumeCapability {
	c := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: accessMode(s.mode, multi)}}
	if block {
		c.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
		return c
	}
	m := &spec.VolumeCapability_MountVolume{FsType: s.fsType, MountFlags: s.options}
	if group != nil {
		m.VolumeMountGroup = strconv.FormatInt(*group, 10)
	}
	c.AccessType = &spec.VolumeCapability_Mount{Mount: m}
	return c
}

// accessMode translates an access mode. multi says that the driver distinguishes one writer from several on a node.
func accessMode(m corev1.PersistentVolumeAccessMode, multi bool) spec.VolumeCapability_AccessMode_Mode {
	switch m {
	case corev1.ReadWriteOnce:
		if multi {
			return spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case corev1.ReadWriteOncePod:
		if multi {
			return spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case corev1.ReadOnlyMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case corev1.ReadWriteMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	return spec.VolumeCapability_AccessMode_UNKNOWN
}

// checkLifecycle checks whether a driver supports the lifecycle mode of a volume.
func checkLifecycle(o *storagev1.CSIDriver, s source) error {
	switch {
	case o == nil && s.life == storagev1.VolumeLifecyclePersistent:
		return nil
	case o == nil:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", s.life, s.driver)
	case slices.Contains(o.Spec.VolumeLifecycleModes, s.life):
		return nil
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", s.life, s.driver, o.Spec.VolumeLifecycleModes)
}

// mustApplyFSGroup reports whether the agent must apply the fsGroup of the Pod to the volume.
func mustApplyFSGroup(o *storagev1.CSIDriver, s source, v *volume.DriverVolume) bool {
	if v.Pod.Spec.SecurityContext == nil || v.Pod.Spec.SecurityContext.FSGroup == nil || v.ReadOnly || v.Block {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if o != nil && o.Spec.FSGroupPolicy != nil {
		policy = *o.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	}
	once := v.PV == nil || slices.Contains(v.PV.Spec.AccessModes, corev1.ReadWriteOnce) ||
		slices.Contains(v.PV.Spec.AccessModes, corev1.ReadWriteOncePod)
	return s.fsType != "" && once
}
