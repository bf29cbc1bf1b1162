package mutate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionlib"
)

// restrictToken lets a node request tokens for the service accounts of its pods, for audiences that the pods need.
func restrictToken(ctx context.Context, a *kind.Admission, node string) error {
	if a.Verb != "create" || a.Sub != "token" {
		return nil
	}
	request, ok := a.Object.(*authenticationv1.TokenRequest)
	if !ok {
		return a.Forbidf("unexpected type %T", a.Object)
	}
	ref := request.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return a.Forbidf("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return a.Forbidf("node requested token with a pod binding without a uid")
	}
	pod, err := getPod(ctx, a, ref.Name)
	if err != nil {
		return err
	}
	if ref.UID != pod.UID {
		return a.Forbidf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != node {
		return a.Forbidf("node requested token bound to a pod scheduled on a different node")
	}
	if err := checkAudience(ctx, a, request.Spec.Audiences, pod); err != nil {
		return a.Forbid(err)
	}
	return nil
}

// checkAudience checks the audience of a token: a volume of the pod requests it, or the node is authorized to request
// it.
func checkAudience(ctx context.Context, a *kind.Admission, audiences []string, pod *corev1.Pod) error {
	if len(audiences) > 1 {
		return errors.New("node may only request 0 or 1 audiences")
	}
	audience := strings.Join(audiences, "")
	found, err := hasVolumeForAudience(ctx, a.Server, pod, audience)
	if err != nil {
		return fmt.Errorf("error validating audience %q: %w", audience, err)
	}
	if found {
		return nil
	}
	st := a.Authorize(ctx, authorizationv1.ResourceAttributes{
		Verb: "request-serviceaccounts-token-audience", Group: a.Def.Group, Version: a.Def.Version, Resource: audience,
		Namespace: a.Namespace, Name: a.Name,
	})
	if st.Allowed {
		return nil
	}
	return fmt.Errorf("%s is not authorized to request tokens for audience %q", a.User.GetName(), audience)
}

// hasVolumeForAudience reports whether a volume of a pod needs a token for an audience, itself or through its CSI
// driver.
func hasVolumeForAudience(ctx context.Context, d kind.Server, pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.ServiceAccountToken != nil && p.ServiceAccountToken.Audience == audience
		}) {
			return true, nil
		}
		driver, err := driverOf(ctx, d, pod, v)
		if err != nil {
			errs = append(errs, err)
		}
		if driver == "" {
			continue
		}
		o, err := d.Get(ctx, schema.GroupResource{Group: storagev1.GroupName, Resource: "csidrivers"}, "", driver)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if c, ok := o.(*storagev1.CSIDriver); ok &&
			slices.ContainsFunc(c.Spec.TokenRequests, func(t storagev1.TokenRequest) bool { return t.Audience == audience }) {
			return true, nil
		}
	}
	return false, utilerrors.NewAggregate(errs)
}

// driverOf returns the CSI driver of a volume; empty for none.
func driverOf(ctx context.Context, d kind.Server, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	claim := ""
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		claim = pod.Name + "-" + v.Name
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.CSI != nil:
		return v.CSI.Driver, nil
	default:
		return migratedDriver(v.AWSElasticBlockStore != nil, v.GCEPersistentDisk != nil, v.AzureDisk != nil, v.AzureFile != nil,
			v.Cinder != nil, v.VsphereVolume != nil, v.PortworxVolume != nil), nil
	}
	o, err := d.Get(ctx, schema.GroupResource{Resource: "persistentvolumeclaims"}, pod.Namespace, claim)
	if err != nil {
		return "", err
	}
	c, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok {
		return "", fmt.Errorf("unexpected type %T", o)
	}
	if o, err = d.Get(ctx, schema.GroupResource{Resource: "persistentvolumes"}, "", c.Spec.VolumeName); err != nil {
		return "", err
	}
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return "", fmt.Errorf("unexpected type %T", o)
	}
	s := &pv.Spec.PersistentVolumeSource
	if s.CSI != nil {
		return s.CSI.Driver, nil
	}
	return migratedDriver(s.AWSElasticBlockStore != nil, s.GCEPersistentDisk != nil, s.AzureDisk != nil, s.AzureFile != nil,
		s.Cinder != nil, s.VsphereVolume != nil, s.PortworxVolume != nil), nil
}

// migratedDriver returns the CSI driver that has replaced a volume plugin which was once built in. kinds says which
// plugin a volume uses, in the order of the drivers.
func migratedDriver(kinds ...bool) string {
	drivers := []string{
		"ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com", "file.csi.azure.com", "cinder.csi.openstack.org",
		"csi.vsphere.vmware.com", "pxd.portworx.com",
	}
	if i := slices.Index(kinds, true); i >= 0 && i < len(drivers) {
		return drivers[i]
	}
	return ""
}

// restrictPodCertificate lets a node request the certificates that its pods mount.
func restrictPodCertificate(ctx context.Context, a *kind.Admission, node string) error {
	if a.Verb != "create" {
		return a.Forbidf("unexpected operation %v", operation(a))
	}
	if a.Sub != "" {
		return a.Forbidf("unexpected subresource %v", a.Sub)
	}
	request, ok := a.Object.(*certificatesv1.PodCertificateRequest)
	if !ok {
		return a.Forbidf("unexpected type %T", a.Object)
	}
	s, called := &request.Spec, a.Namespace+"/"+request.Spec.PodName
	if string(s.NodeName) != node {
		return a.Forbidf("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", s.NodeName, node)
	}
	o, err := getNamed(ctx, a, "node", "", node)
	if err != nil {
		return err
	}
	if o.GetUID() != s.NodeUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", called, s.NodeUID, o.GetUID())
	}
	if o, err = getNamed(ctx, a, "pod", a.Namespace, s.PodName); err != nil {
		return err
	}
	pod, ok := o.(*corev1.Pod)
	switch {
	case !ok:
		return a.Forbidf("unexpected type %T", o)
	case pod.UID != s.PodUID:
		return fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", called, s.PodUID, string(pod.UID))
	case pod.Spec.NodeName != node:
		return a.Forbidf("pod %q is not running on node %q named in the PodCertificateRequest", called, node)
	case admissionlib.IsMirrorPod(pod):
		return a.Forbidf("pod %q is a mirror pod", called)
	case s.ServiceAccountName != pod.Spec.ServiceAccountName:
		return a.Forbidf("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", called, s.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	if o, err = getNamed(ctx, a, "service account", a.Namespace, s.ServiceAccountName); err != nil {
		return err
	}
	if o.GetUID() != s.ServiceAccountUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)", called, s.ServiceAccountUID, o.GetUID())
	}
	return checkSignerMounted(ctx, a, pod, request)
}

// getNamed reads an object that a PodCertificateRequest names.
func getNamed(ctx context.Context, a *kind.Admission, what, namespace, name string) (kind.Object, error) {
	o, err := a.Server.Get(ctx, schema.GroupResource{Resource: strings.ReplaceAll(what, " ", "") + "s"}, namespace, name)
	if err == nil {
		return o, nil
	}
	called := name
	if namespace != "" {
		called = namespace + "/" + name
	}
	wrapped := fmt.Errorf("while retrieving %s %q named in the PodCertificateRequest: %w", what, called, err)
	if apierrors.IsNotFound(err) {
		return nil, wrapped // it may be created later
	}
	return nil, a.Forbidf("%v", wrapped)
}

// checkSignerMounted checks that a volume of the pod requests a certificate of the signer, or that the node is
// authorized to request it.
func checkSignerMounted(ctx context.Context, a *kind.Admission, pod *corev1.Pod, request *certificatesv1.PodCertificateRequest) error {
	wants := func(p corev1.VolumeProjection) bool {
		return p.PodCertificate != nil && p.PodCertificate.SignerName == request.Spec.SignerName
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, wants) {
			return nil
		}
	}
	// A resource cannot have a slash in its name.
	signer := strings.ReplaceAll(request.Spec.SignerName, "/", ":")
	if a.Authorize(ctx, authorizationv1.ResourceAttributes{
		Verb: "request-serviceaccounts-podcertificate-signer", Group: a.Def.Group, Version: a.Def.Version, Resource: signer,
		Namespace: a.Namespace, Name: request.Spec.ServiceAccountName,
	}).Allowed {
		return nil
	}
	return a.Forbidf("pod %q does not mount a podCertificate projected volume for signer %q", a.Namespace+"/"+request.Spec.PodName, request.Spec.SignerName)
}

// restrictCertificate lets a node request certificates in its own name only.
func restrictCertificate(a *kind.Admission, node string) error {
	request, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Verb != "create" {
		return nil
	}
	if s := request.Spec.SignerName; s != certificatesv1.KubeletServingSignerName &&
		s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	csr, err := admissionlib.ParseCertificateRequest(request.Spec.Request)
	if err != nil {
		return a.Forbidf("unable to parse csr: %w", err)
	}
	if csr.Subject.CommonName != "system:node:"+node {
		return a.Forbidf("can only create a node CSR with CN=system:node:%s", node)
	}
	return nil
}
