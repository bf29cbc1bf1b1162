package apiregistration

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/kinds/kind"
)

// APIServices tell which server serves a group version: this one, or another one behind a Service.
func APIServices() *kind.Def {
	type service = apiregistrationv1.APIService
	return kind.Define(kind.Resource[service]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: apiregistrationv1.GroupName, Version: "v1", Kind: "APIService"},
			Plural:           "apiservices", Scope: kind.Cluster,
			StorageFolder:           "apiregistration.k8s.io/apiservices",
			Categories:              []string{"api-extensions"},
			RequiresResourceVersion: true,
		},
		Name:         segmentName,
		Spec:         func(s *service) any { return &s.Spec },
		Status:       func(s *service) any { return &s.Status },
		AnyFinalizer: true,
		Default: func(s *service) {
			if s.Spec.Service != nil && s.Spec.Service.Port == nil {
				s.Spec.Service.Port = new(int32(443))
			}
		},
		Prepare:  prepareAPIService,
		Validate: validateAPIService,
		Subs: []kind.Sub[service]{{
			Name:  "status",
			Reset: []string{"spec", "metadata"},
			Prepare: func(s, old *service) {
				s.Labels, s.Annotations, s.Finalizers, s.OwnerReferences = old.Labels, old.Annotations, old.Finalizers, old.OwnerReferences
			},
			Validate: validateAPIServiceStatus,
		}},
		Columns: []kind.Column[service]{
			kind.NameColumn[service](),
			{Name: "Service", Description: "The reference to the service that hosts this API endpoint.", Value: func(s *service) any {
				if s.Spec.Service == nil {
					return "Local"
				}
				return s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
			}},
			{Name: "Available", Description: "Whether this service is available.", Value: func(s *service) any { return available(s) }},
			kind.AgeColumn[service](),
		},
	})
}

// prepareAPIService marks a group version that this server serves itself as available at once.
func prepareAPIService(s, old *apiregistrationv1.APIService) {
	if old == nil && s.Spec.Service == nil {
		s.Status.Conditions = []apiregistrationv1.APIServiceCondition{localAvailable()}
	}
}

func localAvailable() apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Reason: "Local", Message: "Local APIServices are always available",
	}
}

func available(s *apiregistrationv1.APIService) string {
	for _, c := range s.Status.Conditions {
		if c.Type != apiregistrationv1.Available {
			continue
		}
		if c.Status != apiregistrationv1.ConditionTrue && c.Reason != "" {
			return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
		return string(c.Status)
	}
	return string(apiregistrationv1.ConditionUnknown)
}
