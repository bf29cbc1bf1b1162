package website

import (
	"context"
	"errors"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "example.com/operator/website/api/v1"
)

// SetupWebhooksWithManager adds the webhooks to a manager: those below, and the one that converts Websites between their versions.
func SetupWebhooksWithManager(m ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(m, &v1.Website{}).WithDefaulter(Defaulter{}).WithValidator(Validator{}).Complete()
}

// +kubebuilder:webhook:path=/mutate-example-com-v1-website,mutating=true,failurePolicy=fail,sideEffects=None,groups=example.com,resources=websites,verbs=create;update,versions=v1,name=default.website.example.com,admissionReviewVersions=v1

// Defaulter sets the defaults of Websites.
type Defaulter struct{}

// Default sets the image and the number of replicas.
func (Defaulter) Default(_ context.Context, site *v1.Website) error {
	if site.Spec.Image == "" {
		site.Spec.Image = "nginx:stable"
	}
	if site.Spec.Replicas == nil {
		site.Spec.Replicas = new(int32(2))
	}
	return nil
}

// +kubebuilder:webhook:path=/validate-example-com-v1-website,mutating=false,failurePolicy=fail,sideEffects=None,groups=example.com,resources=websites,verbs=create;update,versions=v1,name=validate.website.example.com,admissionReviewVersions=v1

// Validator rejects invalid Websites.
type Validator struct{}

// ValidateCreate rejects images without a tag, and warns about latest.
func (Validator) ValidateCreate(_ context.Context, site *v1.Website) (warnings admission.Warnings, err error) {
	switch {
	case !strings.Contains(site.Spec.Image, ":"):
		return nil, errors.New("spec.image has no tag")
	case strings.HasSuffix(site.Spec.Image, ":latest"):
		warnings = append(warnings, "latest is another image tomorrow")
	}
	return warnings, nil
}

// ValidateUpdate also rejects a change of the host.
func (v Validator) ValidateUpdate(ctx context.Context, old, site *v1.Website) (admission.Warnings, error) {
	if site.Spec.Host != old.Spec.Host {
		return nil, errors.New("spec.host cannot be changed")
	}
	return v.ValidateCreate(ctx, site)
}

// ValidateDelete allows every deletion.
func (Validator) ValidateDelete(context.Context, *v1.Website) (admission.Warnings, error) {
	return nil, nil
}
