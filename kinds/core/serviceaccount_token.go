package core

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// The bounds and the default of the lifetime of a token, in seconds.
const (
	minTokenLife     = 10 * 60
	maxTokenLife     = 1 << 32
	defaultTokenLife = 60 * 60
)

// attestedGroups is the only supported attestation.
const attestedGroups = "admissionReviewAPIGroups"

func tokenRequestBody() *kind.Body {
	return &kind.Body{
		GroupVersionKind: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		New:              func() kind.Object { return &authenticationv1.TokenRequest{} },
		Echo:             true,
		Default: func(o kind.Object) {
			if r, ok := o.(*authenticationv1.TokenRequest); ok && r.Spec.ExpirationSeconds == nil {
				r.Spec.ExpirationSeconds = new(int64(defaultTokenLife))
			}
		},
	}
}

// requestToken issues a token for a service account, bound to an object if the request names one.
func requestToken(ctx context.Context, d kind.Server, call *kind.Call, account *corev1.ServiceAccount) (kind.Object, error) {
	req, ok := call.Body.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is a %T, not a TokenRequest", call.Body))
	}
	req = req.DeepCopy()
	gk := tokenRequestBody().GroupKind()
	meta := field.NewPath("metadata")
	if req.Name != "" && req.Name != call.Name {
		return nil, apierrors.NewInvalid(gk, call.Name,
			field.ErrorList{field.Invalid(meta.Child("name"), req.Name, "must match the service account name if specified")})
	}
	if req.Namespace != "" && req.Namespace != call.Namespace {
		return nil, apierrors.NewInvalid(gk, call.Name,
			field.ErrorList{field.Invalid(meta.Child("namespace"), req.Namespace, "must match the service account namespace if specified")})
	}
	if req.UID != "" && req.UID != account.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, call.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", req.UID, account.UID))
	}
	req.Name, req.Namespace, req.UID = account.Name, account.Namespace, account.UID
	req.CreationTimestamp = metav1.Now()
	req.Status = authenticationv1.TokenRequestStatus{}
	if req.Spec.ExpirationSeconds == nil {
		req.Spec.ExpirationSeconds = new(int64(defaultTokenLife))
	}
	if errs := validateTokenRequest(req); len(errs) > 0 {
		return nil, apierrors.NewInvalid(gk, "", errs)
	}
	if ref := req.Spec.BoundObjectRef; ref != nil {
		if err := checkBoundObject(ctx, d, account, ref); err != nil {
			return nil, err
		}
	}
	if err := d.IssueToken(ctx, account, req); err != nil {
		return nil, err
	}
	return req, nil
}

// checkBoundObject checks that the object to which a token is bound exists and has the UID of the request.
func checkBoundObject(ctx context.Context, d kind.Server, account *corev1.ServiceAccount,
	ref *authenticationv1.BoundObjectReference) error {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	var uid types.UID
	switch {
	case gvk.Group == "" && gvk.Kind == "Pod":
		obj, err := d.Get(ctx, schema.GroupResource{Resource: "pods"}, account.Namespace, ref.Name)
		if err != nil {
			return err
		}
		if pod, ok := obj.(*corev1.Pod); !ok || pod.Spec.ServiceAccountName != account.Name {
			return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
		}
		uid = obj.GetUID()
	case gvk.Group == "" && (gvk.Kind == "Secret" || gvk.Kind == "Node"):
		gr, namespace := schema.GroupResource{Resource: "secrets"}, account.Namespace
		if gvk.Kind == "Node" {
			gr, namespace = schema.GroupResource{Resource: "nodes"}, ""
		}
		obj, err := d.Get(ctx, gr, namespace, ref.Name)
		if err != nil {
			return err
		}
		uid = obj.GetUID()
	case gvk.GroupVersion() == admissionv1.SchemeGroupVersion && isWebhookConfiguration(gvk.Kind):
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s (feature gate APIServerWebhookAuthenticationToken is disabled)", gvk))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk))
	}
	if ref.UID != "" && ref.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return nil
}

func isWebhookConfiguration(name string) bool {
	return name == "ValidatingWebhookConfiguration" || name == "MutatingWebhookConfiguration"
}

func validateTokenRequest(req *authenticationv1.TokenRequest) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	life := *req.Spec.ExpirationSeconds
	if life < minTokenLife {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), life, "may not specify a duration less than 10 minutes"))
	}
	if life > maxTokenLife {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), life, "may not specify a duration larger than 2^32 seconds"))
	}
	attested := spec.Child("attestations")
	if ref := req.Spec.BoundObjectRef; ref == nil || !isWebhookConfiguration(ref.Kind) {
		if len(req.Spec.Attestations) > 0 {
			return field.ErrorList{field.Invalid(attested, req.Spec.Attestations, "attestations may only be specified with a webhook bound object reference")}
		}
		return errs
	}
	if len(req.Spec.Audiences) != 1 {
		errs = append(errs, field.Invalid(spec.Child("audiences"), req.Spec.Audiences, "must be length 1 when bound to a webhook config"))
	}
	return append(errs, validateAttestations(attested, req.Spec.Attestations)...)
}

func validateAttestations(path *field.Path, attestations map[string]authenticationv1.AttestationValue) field.ErrorList {
	if len(attestations) != 1 {
		return field.ErrorList{field.Invalid(path, attestations, "webhook bound requests require exactly one admissionReviewAPIGroups attestation")}
	}
	key := slices.Collect(maps.Keys(attestations))[0]
	values, path := attestations[key], path.Key(key)
	switch {
	case key != attestedGroups:
		return field.ErrorList{field.NotSupported(path, key, []string{attestedGroups})}
	case len(values) != 1:
		return field.ErrorList{field.Invalid(path, values, "must specify a single value")}
	case values[0] == "":
		return field.ErrorList{field.Invalid(path.Index(0), values[0], "may not be an empty string")}
	case values[0] == "*":
		return nil
	}
	var errs field.ErrorList
	for _, m := range validation.IsDNS1123Subdomain(values[0]) {
		errs = append(errs, field.Invalid(path.Index(0), values[0], "must specify a valid API Group: "+m))
	}
	return errs
}
