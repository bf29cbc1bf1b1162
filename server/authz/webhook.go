package authz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/expirycache"
)

// Webhook is an authorizer that sends SubjectAccessReviews to a webhook.
type Webhook struct {
	// Post sends a SubjectAccessReview and returns the response.
	Post func(ctx context.Context, body []byte) ([]byte, error)
	// Version is the version of the SubjectAccessReview, v1 or v1beta1.
	Version string
	// Match reports whether the webhook is asked about a request; nil for all requests.
	Match func(ctx context.Context, review *authorizationv1.SubjectAccessReview) (bool, error)
	// OnFailure is the decision when the webhook cannot be asked: NoOpinion or Deny.
	OnFailure Decision
	// AllowedTTL and DeniedTTL are how long an answer is cached. 0 disables the cache.
	AllowedTTL, DeniedTTL time.Duration

	answers expirycache.Cache[string, authorizationv1.SubjectAccessReviewStatus]
}

// maxQuestion is the size of the largest question whose answer is cached, because clients decide what is in it.
const maxQuestion = 10000

// maxReason is the length of the longest reason of a webhook that clients and the audit log get.
const maxReason = 4 << 10

// Authorize returns the cached answer, or asks the webhook.
func (w *Webhook) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	review := reviewOf(&a)
	if w.Match != nil {
		matches, err := w.Match(ctx, review)
		if err != nil {
			return w.OnFailure, "", err
		}
		if !matches {
			return NoOpinion, "", nil
		}
	}
	status, err := w.ask(ctx, review, isCacheable(&a))
	if err != nil {
		return w.OnFailure, "", err
	}
	switch {
	case status.Denied && status.Allowed:
		return Deny, status.Reason, errors.New("webhook subject access review returned both allow and deny response")
	case status.Denied:
		return Deny, status.Reason, nil
	case status.Allowed:
		return Allow, status.Reason, nil
	}
	return NoOpinion, status.Reason, nil
}

// List implements Lister: a webhook cannot list what it would allow.
func (w *Webhook) List(user.Info, string) ([]rbacv1.PolicyRule, bool, error) {
	return nil, true, errors.New("webhook authorizer does not support user rule resolution")
}

// ask returns the cached answer to a review, or asks the webhook. A failure is not cached.
func (w *Webhook) ask(ctx context.Context, review *authorizationv1.SubjectAccessReview,
	cacheable bool) (none authorizationv1.SubjectAccessReviewStatus, err error) {
	spec, err := json.Marshal(review.Spec)
	if err != nil {
		return none, err
	}
	key, now := string(spec), time.Now()
	if status, cached := w.answers.Get(key, now); cached {
		return status, nil
	}
	body, err := w.encode(review)
	if err != nil {
		return none, err
	}
	text, err := w.Post(ctx, body)
	if err != nil {
		return none, fmt.Errorf("ask the authorization webhook: %w", err)
	}
	var answer authorizationv1.SubjectAccessReview // the status is the same in both versions
	if err := json.Unmarshal(text, &answer); err != nil {
		return none, fmt.Errorf("read what the authorization webhook says: %w", err)
	}
	if answer.Kind != "SubjectAccessReview" {
		return none, fmt.Errorf("the authorization webhook answered with a %q, not a SubjectAccessReview", answer.Kind)
	}
	answer.Status.Reason = answer.Status.Reason[:min(len(answer.Status.Reason), maxReason)]
	ttl := w.DeniedTTL
	if answer.Status.Allowed {
		ttl = w.AllowedTTL
	}
	if cacheable && ttl > 0 {
		w.answers.Put(key, answer.Status, len(key)+len(text), now.Add(ttl), now)
	}
	return answer.Status, nil
}

// encode encodes a review in the webhook's version.
func (w *Webhook) encode(review *authorizationv1.SubjectAccessReview) ([]byte, error) {
	if w.Version == "v1" {
		review.Kind, review.APIVersion = "SubjectAccessReview", authorizationv1.SchemeGroupVersion.String()
		return json.Marshal(review)
	}
	old := authorizationv1beta1.SubjectAccessReview{Spec: authorizationv1beta1.SubjectAccessReviewSpec{
		User: review.Spec.User, UID: review.Spec.UID, Groups: review.Spec.Groups,
		NonResourceAttributes: (*authorizationv1beta1.NonResourceAttributes)(review.Spec.NonResourceAttributes),
	}}
	old.Kind, old.APIVersion = "SubjectAccessReview", authorizationv1beta1.SchemeGroupVersion.String()
	for k, v := range review.Spec.Extra {
		if old.Spec.Extra == nil {
			old.Spec.Extra = map[string]authorizationv1beta1.ExtraValue{}
		}
		old.Spec.Extra[k] = authorizationv1beta1.ExtraValue(v)
	}
	if in := review.Spec.ResourceAttributes; in != nil {
		old.Spec.ResourceAttributes = &authorizationv1beta1.ResourceAttributes{
			Namespace: in.Namespace, Verb: in.Verb, Group: in.Group, Version: in.Version, Resource: in.Resource,
			Subresource: in.Subresource, Name: in.Name,
			FieldSelector: in.FieldSelector, LabelSelector: in.LabelSelector,
		}
	}
	return json.Marshal(old)
}

// reviewOf returns the review that asks about the attributes.
func reviewOf(a *Attributes) *authorizationv1.SubjectAccessReview {
	r := &authorizationv1.SubjectAccessReview{}
	if u := a.User; u != nil {
		r.Spec = authorizationv1.SubjectAccessReviewSpec{User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
		for k, v := range u.GetExtra() {
			if r.Spec.Extra == nil {
				r.Spec.Extra = map[string]authorizationv1.ExtraValue{}
			}
			r.Spec.Extra[k] = v
		}
	}
	if !a.IsResource {
		r.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
		return r
	}
	r.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.Namespace, Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource,
		Name: a.Name,
	}
	if list := fieldsOf(a); len(list) > 0 {
		r.Spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: list}
	}
	if list := labelsOf(a); len(list) > 0 {
		r.Spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: list}
	}
	return r
}

// fieldsOf returns the requirements on fields. One that a review cannot express is left out, which widens the question.
func fieldsOf(a *Attributes) (out []metav1.FieldSelectorRequirement) {
	for _, r := range a.FieldSelector {
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: metav1.FieldSelectorOpIn, Values: []string{r.Value}})
		case selection.NotEquals, selection.NotIn:
			out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: metav1.FieldSelectorOpNotIn,
				Values: []string{r.Value}})
		}
	}
	return out
}

// labelsOf returns the requirements on labels.
func labelsOf(a *Attributes) (out []metav1.LabelSelectorRequirement) {
	for _, r := range a.LabelSelector {
		values := r.ValuesUnsorted()
		slices.Sort(values)
		if len(values) == 0 {
			values = nil
		}
		is := metav1.LabelSelectorRequirement{Key: r.Key(), Values: values}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			is.Operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			is.Operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			is.Operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			is.Operator = metav1.LabelSelectorOpDoesNotExist
		default:
			continue
		}
		out = append(out, is)
	}
	return out
}

// isCacheable reports whether a question is small enough for the cache.
func isCacheable(a *Attributes) bool {
	size := len(a.Namespace) + len(a.Verb) + len(a.Group) + len(a.Version) + len(a.Resource) + len(a.Subresource) + len(a.Name) +
		len(a.Path)
	for _, r := range a.FieldSelector {
		size += len(r.Field) + len(r.Value)
	}
	for _, r := range a.LabelSelector {
		size += len(r.String())
	}
	return size < maxQuestion
}
