package authn

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Granted is the answer to a TokenRequest.
type Granted struct {
	Request *authenticationv1.TokenRequest
	// Warning is for the client, empty when there is none.
	Warning string
	// AuditKey and AuditValue annotate the audit event with the new credential.
	AuditKey, AuditValue string
}

// TokenRequest answers the token subresource of the service account namespace/name. The request is not
// changed. Errors are API errors.
func (a *Authenticator) TokenRequest(ctx context.Context, namespace, name string, in *authenticationv1.TokenRequest) (*Granted, error) {
	req := in.DeepCopy()
	if err := checkRequestMeta(req, namespace, name); err != nil {
		return nil, err
	}
	sa, err := a.cfg.Lookup.ServiceAccount(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if req.UID != "" && req.UID != sa.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: authenticationv1.GroupName, Resource: "TokenRequest"}, name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", req.UID, sa.UID))
	}
	a.defaultRequest(req, sa)
	if errs := validateRequest(req); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}, "", errs)
	}
	issue := IssueRequest{ServiceAccount: sa, Audiences: req.Spec.Audiences, ExpirationSeconds: *req.Spec.ExpirationSeconds}
	if req.Spec.BoundObjectRef != nil {
		if err := a.bind(ctx, &issue, req.Spec.BoundObjectRef); err != nil {
			return nil, err
		}
	}
	issued, err := a.Issue(ctx, issue)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	req.Spec.ExpirationSeconds = &issued.ExpirationSeconds
	req.Status = authenticationv1.TokenRequestStatus{Token: issued.Token, ExpirationTimestamp: metav1.NewTime(issued.Expires)}
	return &Granted{
		Request: req, Warning: issued.Warning,
		AuditKey: serviceaccount.IssuedCredentialIDAuditAnnotationKey, AuditValue: issued.CredentialID,
	}, nil
}

// checkRequestMeta rejects a body that names another service account than the URL.
func checkRequestMeta(req *authenticationv1.TokenRequest, namespace, name string) error {
	path := field.NewPath("metadata")
	var errs field.ErrorList
	switch {
	case req.Name != "" && req.Name != name:
		errs = append(errs, field.Invalid(path.Child("name"), req.Name, "must match the service account name if specified"))
	case req.Namespace != "" && req.Namespace != namespace:
		errs = append(errs, field.Invalid(path.Child("namespace"), req.Namespace, "must match the service account namespace if specified"))
	default:
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}, name, errs)
}

// defaultRequest sets the defaults of a TokenRequest.
func (a *Authenticator) defaultRequest(req *authenticationv1.TokenRequest, sa *corev1.ServiceAccount) {
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = append([]string{}, a.audiences...)
	}
	if req.Spec.ExpirationSeconds == nil {
		req.Spec.ExpirationSeconds = new(int64(DefaultExpirationSeconds))
	}
	req.Name, req.Namespace, req.UID = sa.Name, sa.Namespace, sa.UID
	// Attestations belong to bindings that are not supported.
	req.Spec.Attestations = nil
	req.CreationTimestamp = metav1.NewTime(a.now())
}

func validateRequest(req *authenticationv1.TokenRequest) field.ErrorList {
	var errs field.ErrorList
	path, life := field.NewPath("spec", "expirationSeconds"), *req.Spec.ExpirationSeconds
	if life < 10*60 {
		errs = append(errs, field.Invalid(path, life, "may not specify a duration less than 10 minutes"))
	}
	if life > 1<<32 {
		errs = append(errs, field.Invalid(path, life, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

// bind reads the object that the token is bound to.
func (a *Authenticator) bind(ctx context.Context, issue *IssueRequest, ref *authenticationv1.BoundObjectReference) error {
	var uid types.UID
	var err error
	namespace, gvk := issue.ServiceAccount.Namespace, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	switch {
	case gvk.Group == "" && gvk.Kind == "Pod":
		if issue.Pod, err = a.cfg.Lookup.Pod(ctx, namespace, ref.Name); err != nil {
			return err
		}
		if name := issue.ServiceAccount.Name; issue.Pod.Spec.ServiceAccountName != name {
			return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", name))
		}
		if issue.Node, err = a.nodeOf(ctx, issue.Pod); err != nil {
			return err
		}
		uid = issue.Pod.UID
	case gvk.Group == "" && gvk.Kind == "Node":
		if issue.Node, err = a.cfg.Lookup.Node(ctx, ref.Name); err != nil {
			return err
		}
		uid = issue.Node.UID
	case gvk.Group == "" && gvk.Kind == "Secret":
		if issue.Secret, err = a.cfg.Lookup.Secret(ctx, namespace, ref.Name); err != nil {
			return err
		}
		uid = issue.Secret.UID
	default:
		return apierrors.NewBadRequest("cannot bind token to object of type " + gvk.String())
	}
	if ref.UID != "" && uid != ref.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return nil
}

// nodeOf returns the Node of a Pod. A Node that no longer exists is returned without its UID.
func (a *Authenticator) nodeOf(ctx context.Context, pod *corev1.Pod) (*corev1.Node, error) {
	name := pod.Spec.NodeName
	if name == "" {
		return nil, nil
	}
	node, err := a.cfg.Lookup.Node(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	}
	return node, nil
}
