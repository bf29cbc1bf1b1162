// Package certificate approves, signs and deletes CertificateSigningRequests. It approves requests of kubelets for their own
// certificates, if they have the permission; it signs approved requests for the signers that the cluster itself runs; and it
// deletes requests that are no longer needed.
//
// Each reconcile makes one step of a request; the write of the step wakes the controller for the next one.
package certificate

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"strconv"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/nodeaddress"
)

// Config holds the certificate authorities and limits of the signers.
type Config struct {
	// CA returns the cluster's current certificate authority.
	CA func() (*x509.Certificate, crypto.Signer)
	// KubeletCA returns the certificate authority of kubelets' serving certificates; nil for CA. Clients of the API do not
	// trust it, so that no kubelet can impersonate the API server.
	KubeletCA func() (*x509.Certificate, crypto.Signer)
	// Reserved are the names and addresses that no kubelet may have in its certificate.
	Reserved nodeaddress.Cluster
	// Life is how long certificates are valid if the request does not ask for less; 0 is a year.
	Life time.Duration

	// approvals serializes the approvals of node names: each must see the approvals before it.
	approvals *sync.Mutex
}

// Controller returns the controller.
func Controller(config Config) control.Controller {
	if config.Life == 0 {
		config.Life = 365 * 24 * time.Hour
	}
	config.approvals = &sync.Mutex{}
	return control.Controller{
		Name: "certificate-controller", For: gr.CertificateSigningRequests, Reads: []schema.GroupResource{gr.Nodes, gr.ServiceCIDRs},
		Workers: 5,
		Writes: []control.Write{
			{On: gr.CertificateSigningRequests, Do: "get update/approval update/status delete"},
			{On: gr.Nodes, Do: "get"},
			{On: signers(), Do: "approve sign"},
			{On: reviews(), Do: "create"},
		},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			request, found := control.Get[*certificatesv1.CertificateSigningRequest](c, gr.CertificateSigningRequests, "", k.Name)
			if !found {
				return 0, nil
			}
			return config.step(ctx, c, request)
		},
	}
}

// signers returns a virtual resource: admission checks permissions on it for approving and signing.
func signers() schema.GroupResource {
	return schema.GroupResource{Group: certificatesv1.GroupName, Resource: "signers"}
}

func reviews() schema.GroupResource {
	return schema.GroupResource{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"}
}

// step makes the next step of a request.
func (config *Config) step(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest) (time.Duration,
	error) {
	now := time.Now()
	p := decide(request, now)
	next := request.DeepCopy()
	var err error
	switch {
	case p.remove:
		err = c.Delete(ctx, gr.CertificateSigningRequests, "", request.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: new(request.UID), ResourceVersion: new(request.ResourceVersion)},
		})
	case p.invalid != "":
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: p.invalid,
			LastUpdateTime: metav1.NewTime(now),
		})
		_, err = c.Update(ctx, gr.CertificateSigningRequests, next, "status")
	case p.sign != nil:
		ca, key := config.authority(request.Spec.SignerName)
		if next.Status.Certificate, err = sign(p.sign, request.Spec.Usages,
			validity(config.maxValidity(request, p.sign), request.Spec.ExpirationSeconds), issuer{ca, key, now}); err == nil {
			_, err = c.Update(ctx, gr.CertificateSigningRequests, next, "status")
		}
	case len(p.permissions) > 0:
		return config.approve(ctx, c, next, p, now)
	case p.node != "":
		return config.approveServing(ctx, c, next, p, now)
	}
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return p.again, err
}

// authority returns the certificate authority of a signer.
func (config *Config) authority(signer string) (*x509.Certificate, crypto.Signer) {
	if signer == certificatesv1.KubeletServingSignerName && config.KubeletCA != nil {
		return config.KubeletCA()
	}
	return config.CA()
}

// approve approves or denies a request if the requestor has one of the permissions in the plan.
func (config *Config) approve(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest, p plan,
	now time.Time) (time.Duration, error) {
	for _, a := range p.permissions {
		// A review is answered and not stored. Create would make the engine wait for a view to show it.
		o, err := c.Act(ctx, reviews(), "", "", "", review(request, a.permission))
		if err != nil {
			return 0, err
		}
		if answer, ok := o.(*authorizationv1.SubjectAccessReview); !ok || !answer.Status.Allowed {
			continue
		}
		answered, err := config.answerNodeRequest(ctx, c, request, a)
		if err != nil || answered {
			if apierrors.IsNotFound(err) {
				return 0, nil
			}
			return p.again, err
		}
		break
	}
	// The permission may be granted later.
	again := retryAfter(request, now)
	if p.again > 0 {
		again = min(again, p.again)
	}
	return again, nil
}

// autoApproved is the reason of the approvals by this controller.
const autoApproved = "AutoApproved"

// answerNodeRequest approves or denies the request for a node's client certificate, and reports whether it did. It returns when the view
// shows the answer, so that a decision about another request for the same name sees it.
func (config *Config) answerNodeRequest(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest,
	a permissionCheck) (bool, error) {
	config.approvals.Lock()
	defer config.approvals.Unlock()
	r, err := decideNodeRequest(ctx, c, request, a.renewal)
	if err != nil || !r.approved && r.reason == "" {
		return false, err
	}
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: autoApproved, Message: a.message,
	}
	if !r.approved {
		condition.Type, condition.Reason, condition.Message = certificatesv1.CertificateDenied, r.reason, r.message
	}
	request.Status.Conditions = append(request.Status.Conditions, condition)
	o, err := c.Update(ctx, gr.CertificateSigningRequests, request, "approval")
	if err != nil {
		return false, err
	}
	rev, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return true, fmt.Errorf("resource version of %s: %w", o.GetName(), err)
	}
	return true, c.View(gr.CertificateSigningRequests).Reach(ctx, rev)
}

// approveServing approves a serving certificate whose names are addresses of its Node and of no other, so that the kubelet cannot
// impersonate another machine with it. Other requests are left to administrators.
func (config *Config) approveServing(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest, p plan,
	now time.Time) (time.Duration, error) {
	node, found := control.Get[*corev1.Node](c, gr.Nodes, "", p.node)
	wanted, err := parse(request.Spec.Request)
	if err != nil {
		return p.again, nil //nolint:nilerr // a request that cannot be parsed is not approved
	}
	reserved := withRanges(config.Reserved, control.List[*networkingv1.ServiceCIDR](c, gr.ServiceCIDRs, ""))
	if !found || !ownsNames(node, wanted, control.List[*corev1.Node](c, gr.Nodes, ""), reserved) {
		// The Node may get these addresses later.
		return min(retryAfter(request, now), p.again), nil
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: autoApproved,
		Message: "Auto approving kubelet serving certificate: its names are the addresses of the Node.",
	})
	if _, err = c.Update(ctx, gr.CertificateSigningRequests, request, "approval"); apierrors.IsNotFound(err) {
		return 0, nil
	}
	return p.again, err
}

// review returns a SubjectAccessReview about a permission of the requestor.
func review(request *certificatesv1.CertificateSigningRequest, permission string) *authorizationv1.SubjectAccessReview {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range request.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	return &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: request.Spec.Username, UID: request.Spec.UID, Groups: request.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Subresource: permission,
				Verb: "create",
			},
		},
	}
}
