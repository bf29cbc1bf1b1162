// Package certificate approves, signs and clears away CertificateSigningRequests. It approves what kubelets ask for
// themselves with, if they may; it signs what anybody has approved for the signers that the cluster itself runs; and it
// deletes requests when nobody needs them any more.
//
// One look at a request does one step of it; the change that the step makes leads to the next look.
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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/nodeaddress"
)

// Config says how requests are signed.
type Config struct {
	// CA returns the cluster's authority as it is now.
	CA func() (*x509.Certificate, crypto.Signer)
	// KubeletCA returns the authority that signs what kubelets serve with; nil for CA. Clients of the API do not trust it, so that
	// no kubelet can be taken for the API server.
	KubeletCA func() (*x509.Certificate, crypto.Signer)
	// Reserved are the names and addresses that are not in the certificate of any kubelet.
	Reserved nodeaddress.Cluster
	// Life is how long certificates are good if the request does not ask for less; 0 is a year.
	Life time.Duration

	// joins lets one request at a time have the name of a node: what another was given must be seen.
	joins *sync.Mutex
}

// Controller returns the loop.
func Controller(config Config) control.Controller {
	if config.Life == 0 {
		config.Life = 365 * 24 * time.Hour
	}
	config.joins = &sync.Mutex{}
	return control.Controller{
		Name: "certificate-controller", For: gr.CertificateSigningRequests, Reads: []schema.GroupResource{gr.Nodes, gr.ServiceCIDRs}, Workers: 5,
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

// signers is no resource: admission asks under this name who may approve and sign.
func signers() schema.GroupResource {
	return schema.GroupResource{Group: certificatesv1.GroupName, Resource: "signers"}
}

func reviews() schema.GroupResource {
	return schema.GroupResource{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"}
}

func (config *Config) step(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest) (time.Duration, error) {
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
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: p.invalid, LastUpdateTime: metav1.NewTime(now),
		})
		_, err = c.Update(ctx, gr.CertificateSigningRequests, next, "status")
	case p.sign != nil:
		ca, key := config.authority(request.Spec.SignerName)
		if next.Status.Certificate, err = sign(p.sign, request.Spec.Usages, life(config.longest(request, p.sign), request.Spec.ExpirationSeconds), issuer{ca, key, now}); err == nil {
			_, err = c.Update(ctx, gr.CertificateSigningRequests, next, "status")
		}
	case len(p.ask) > 0:
		return config.approve(ctx, c, next, p, now)
	case p.node != "":
		return config.vouch(ctx, c, next, p, now)
	}
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return p.again, err
}

// authority is the one that a signer signs with.
func (config *Config) authority(signer string) (*x509.Certificate, crypto.Signer) {
	if signer == certificatesv1.KubeletServingSignerName && config.KubeletCA != nil {
		return config.KubeletCA()
	}
	return config.CA()
}

// approve asks whether the requestor may have what it wants, and says so in the request.
func (config *Config) approve(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest, p plan, now time.Time) (time.Duration, error) {
	for _, a := range p.ask {
		// A review is answered and not stored, so it is an act, and not a creation after which a view would have to catch up.
		o, err := c.Act(ctx, reviews(), "", "", "", review(request, a.permission))
		if err != nil {
			return 0, err
		}
		if answer, ok := o.(*authorizationv1.SubjectAccessReview); !ok || !answer.Status.Allowed {
			continue
		}
		answered, err := config.answer(ctx, c, request, a)
		if err != nil || answered {
			if apierrors.IsNotFound(err) {
				return 0, nil
			}
			return p.again, err
		}
		break
	}
	// The permission may come later than the request.
	again := patience(request, now)
	if p.again > 0 {
		again = min(again, p.again)
	}
	return again, nil
}

// autoApproved is the reason of the approvals that this controller gives.
const autoApproved = "AutoApproved"

// answer approves or denies the request for a node's client certificate, and says whether it did. It returns when the view shows
// the answer, so that the next request for the same name meets it.
func (config *Config) answer(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest, a asked) (bool, error) {
	config.joins.Lock()
	defer config.joins.Unlock()
	r, err := judge(ctx, c, request, a.renewal)
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

// vouch approves a serving certificate whose names are the addresses of its Node, and of nobody else: nobody is in danger of being
// taken for it. Others are left to people.
func (config *Config) vouch(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest, p plan, now time.Time) (time.Duration, error) {
	node, found := control.Get[*corev1.Node](c, gr.Nodes, "", p.node)
	wanted, err := parse(request.Spec.Request)
	if err != nil {
		return p.again, nil //nolint:nilerr // nobody vouches for what cannot be read
	}
	reserved := withRanges(config.Reserved, control.List[*networkingv1.ServiceCIDR](c, gr.ServiceCIDRs, ""))
	if !found || !owns(node, wanted, control.List[*corev1.Node](c, gr.Nodes, ""), reserved) {
		// The Node may say more about itself later.
		return min(patience(request, now), p.again), nil
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

// review asks about a permission of whoever made the request.
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
				Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Subresource: permission, Verb: "create",
			},
		},
	}
}
