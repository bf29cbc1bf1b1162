// Package volumeexpand records Events about claims that request more storage than they have. External resizers expand the
// volumes; for volumes of types that were once built in, the controller annotates the claim with the CSI driver that has
// replaced them.
package volumeexpand

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	// resizer is the annotation with the driver that shall expand a volume.
	resizer = "volume.kubernetes.io/storage-resizer"
	// preResize is the annotation of a volume whose file system is not expanded yet.
	preResize = "volume.alpha.kubernetes.io/pre-resize-capacity"
)

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: "expand-controller", Component: "volume_expand", For: gr.PersistentVolumeClaims, When: hasGrown, Workers: 2,
		Reads:  []schema.GroupResource{gr.PersistentVolumes},
		Writes: []control.Write{{On: gr.PersistentVolumeClaims, Do: "update"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			claim, found := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, k.Namespace, k.Name)
			if !found || claim.Status.Phase != corev1.ClaimBound {
				return 0, nil
			}
			v, found := control.Get[*corev1.PersistentVolume](c, gr.PersistentVolumes, "", claim.Spec.VolumeName)
			if !found || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
				return 0, fmt.Errorf("persistent Volume is not bound to PVC being updated : %s/%s", claim.Namespace, claim.Name)
			}
			return 0, apply(ctx, c, claim, decide(claim, v))
		},
	}
}

// hasGrown accepts changes after which a bound claim requests or has more storage than before.
func hasGrown(old, now kind.Object) bool {
	claim, ok := now.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Status.Phase != corev1.ClaimBound {
		return false
	}
	was, ok := old.(*corev1.PersistentVolumeClaim)
	if !ok {
		return true
	}
	asked, has := was.Spec.Resources.Requests[corev1.ResourceStorage], was.Status.Capacity[corev1.ResourceStorage]
	asks, gets := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	return asks.Cmp(asked) > 0 || gets.Cmp(has) > 0
}

// plan is the message of the Event, and the resizer for the annotation of the claim.
type plan struct{ text, resizer string }

// decide returns what to do with a bound claim.
func decide(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) plan {
	asks, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if asks.Cmp(has) <= 0 && !metav1.HasAnnotation(v.ObjectMeta, preResize) {
		return plan{}
	}
	if name, driver := migratedSource(&v.Spec.PersistentVolumeSource); driver != "" {
		return plan{fmt.Sprintf("CSI migration enabled for %s; waiting for external resizer to expand the pvc", name), driver}
	}
	return plan{text: "waiting for an external controller to expand this PVC"}
}

// migratedSource returns the provisioner of a volume of a type that was once built in, and the CSI driver that has replaced it.
func migratedSource(s *corev1.PersistentVolumeSource) (provisioner, driver string) {
	switch {
	case s.AWSElasticBlockStore != nil:
		return "kubernetes.io/aws-ebs", "ebs.csi.aws.com"
	case s.AzureDisk != nil:
		return "kubernetes.io/azure-disk", "disk.csi.azure.com"
	case s.AzureFile != nil:
		return "kubernetes.io/azure-file", "file.csi.azure.com"
	case s.Cinder != nil:
		return "kubernetes.io/cinder", "cinder.csi.openstack.org"
	case s.GCEPersistentDisk != nil:
		return "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"
	case s.PortworxVolume != nil:
		return "kubernetes.io/portworx-volume", "pxd.portworx.com"
	case s.VsphereVolume != nil:
		return "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"
	}
	return "", ""
}

func apply(ctx context.Context, c *control.Cluster, claim *corev1.PersistentVolumeClaim, p plan) error {
	if p.text == "" {
		return nil
	}
	c.Event(claim, corev1.EventTypeNormal, "ExternalExpanding", "%s", p.text)
	if p.resizer == "" || claim.Annotations[resizer] == p.resizer {
		return nil
	}
	next := claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, resizer, p.resizer)
	_, err := c.Update(ctx, gr.PersistentVolumeClaims, next, "")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
