package kinds

import (
	"errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/kinds/lib/codec"
	"proa.dev/kinds/nodereport"
	"proa.dev/kinds/whykind"
	"proa.dev/trace"
)

// Scheme returns the scheme of all served types. It has no defaulting functions: the descriptors default objects.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	var errs []error
	for _, add := range []func(*runtime.Scheme) error{
		codec.AddMeta, apidiscoveryv2.AddToScheme,
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		policyv1.AddToScheme, networkingv1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme, coordinationv1.AddToScheme,
		rbacv1.AddToScheme, storagev1.AddToScheme, schedulingv1.AddToScheme, schedulingv1beta1.AddToScheme, nodev1.AddToScheme,
		admissionregistrationv1.AddToScheme,
		certificatesv1.AddToScheme, flowcontrolv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		resourcev1.AddToScheme, storagemigrationv1.AddToScheme,
		apiextensionsv1.SchemeBuilder.AddToScheme, apiregistrationv1.SchemeBuilder.AddToScheme, metricsv1beta1.AddToScheme,
		trace.AddToScheme, whykind.AddToScheme,
		nodereport.AddToScheme,
	} {
		errs = append(errs, add(s))
	}
	return s, errors.Join(errs...)
}
