package localpath

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/localvolume"
)

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node)
		want       string
		reschedule bool
	}{
		"provisioned": {func(*corev1.PersistentVolumeClaim, *storagev1.StorageClass, *corev1.Node) {}, "/data/pvc-u1", false},
		"the beta annotation": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.Annotations = map[string]string{provisionerBeta: localvolume.Provisioner, selectedNode: "a"}
		}, "/data/pvc-u1", false},
		"bound": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.Spec.VolumeName = "v"
		}, "", false},
		"no provisioner annotation yet": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			delete(c.Annotations, provisioner)
		}, "", false},
		"another provisioner": {func(_ *corev1.PersistentVolumeClaim, s *storagev1.StorageClass, _ *corev1.Node) {
			s.Provisioner = "x"
		}, "", false},
		"no node yet": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			delete(c.Annotations, selectedNode)
		}, "", false},
		"a node without proa's annotation": {func(_ *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, n *corev1.Node) {
			n.Annotations = nil
		}, `node "a" keeps no volumes; its agent must be one of proa`, true},
		"immediate": {func(_ *corev1.PersistentVolumeClaim, s *storagev1.StorageClass, _ *corev1.Node) {
			s.VolumeBindingMode = nil
		}, "the class must have volumeBindingMode WaitForFirstConsumer, so that the node of the volume is known", false},
		"a block device": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
		}, "folders of a node cannot be block devices", false},
		"with a selector": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.Spec.Selector = &metav1.LabelSelector{}
		}, "claim.Spec.Selector is not supported", false},
		"from a snapshot": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{}
		}, "a folder of a node cannot be made from another volume or a snapshot", false},
		"being deleted": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.DeletionTimestamp = &metav1.Time{}
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u1",
				Annotations: map[string]string{provisioner: localvolume.Provisioner, selectedNode: "a"}}}
			class := localvolume.StorageClass()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a",
				Annotations: map[string]string{localvolume.FolderAnnotation: "/data"}}}
			c.change(claim, class, node)
			p := decide(claim, class, node)
			got := p.problem
			if p.volume != nil {
				got = p.volume.Spec.Local.Path
			}
			if got != c.want || p.reschedule != c.reschedule {
				t.Errorf("got %q, reschedule %v; want %q", got, p.reschedule, c.want)
			}
		})
	}
	if p := decide(
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{provisioner: localvolume.Provisioner,
			selectedNode: "a"}}}, localvolume.StorageClass(), nil); !p.reschedule {
		t.Error("a claim keeps a node that does not exist")
	}
}
