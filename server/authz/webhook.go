package authz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Webhook asks somebody else whether a user may do something.
type Webhook struct {
	// Post sends a SubjectAccessReview and returns the answer.
	Post func(ctx context.Context, body []byte) ([]byte, error)
	// Version is that of the SubjectAccessReview, v1 or v1beta1.
	Version string
	// Match says whether a question is one for the webhook; nil for all.
	Match func(ctx context.Context, review *authorizationv1.SubjectAccessReview) (bool, error)
	// Failed is the decision when there is no answer: NoOpinion or Deny.
	Failed Decision
	// KeepAllowed and KeepOthers are how long an answer is good. 0 asks each time.
	KeepAllowed, KeepOthers time.Duration

	mu   sync.Mutex // guards kept
	kept map[string]verdict
}

// verdict is an answer, and until when it is good.
type verdict struct {
	status authorizationv1.SubjectAccessReviewStatus
	until  time.Time
}

const (
	maxVerdicts = 8192
	// maxKept bounds the parts of a question that is remembered together: what strangers send must not fill the memory.
	maxKept = 10000
)

// Authorize asks, or remembers.
func (w *Webhook) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	review := question(&a)
	if w.Match != nil {
		matches, err := w.Match(ctx, review)
		if err != nil {
			return w.Failed, "", err
		}
		if !matches {
			return NoOpinion, "", nil
		}
	}
	status, err := w.ask(ctx, review, memorable(&a))
	if err != nil {
		return w.Failed, "", err
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

// List makes a Webhook a Lister: it cannot tell what it would allow.
func (w *Webhook) List(user.Info, string) ([]rbacv1.PolicyRule, bool, error) {
	return nil, true, errors.New("webhook authorizer does not support user rule resolution")
}

func (w *Webhook) ask(ctx context.Context, review *authorizationv1.SubjectAccessReview, keep bool) (none authorizationv1.SubjectAccessReviewStatus, err error) {
	spec, err := json.Marshal(review.Spec)
	if err != nil {
		return none, err
	}
	key, now := string(spec), time.Now()
	w.mu.Lock()
	had, found := w.kept[key]
	w.mu.Unlock()
	if found && now.Before(had.until) {
		return had.status, nil
	}
	body, err := w.encode(review)
	if err != nil {
		return none, err
	}
	text, err := w.Post(ctx, body)
	if err != nil {
		return none, fmt.Errorf("ask the authorization webhook: %w", err)
	}
	var said authorizationv1.SubjectAccessReview // the status is the same in both versions
	if err := json.Unmarshal(text, &said); err != nil {
		return none, fmt.Errorf("read what the authorization webhook says: %w", err)
	}
	if said.Kind != "SubjectAccessReview" {
		return none, fmt.Errorf("the authorization webhook answered with a %q, not a SubjectAccessReview", said.Kind)
	}
	good := w.KeepOthers
	if said.Status.Allowed {
		good = w.KeepAllowed
	}
	if keep && good > 0 {
		w.remember(key, verdict{said.Status, now.Add(good)}, now)
	}
	return said.Status, nil
}

func (w *Webhook) remember(key string, v verdict, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kept == nil {
		w.kept = map[string]verdict{}
	}
	if len(w.kept) >= maxVerdicts {
		for k, old := range w.kept {
			if !now.Before(old.until) {
				delete(w.kept, k)
			}
		}
		for k := range w.kept { // in no order, so any will do
			if len(w.kept) < maxVerdicts {
				break
			}
			delete(w.kept, k)
		}
	}
	w.kept[key] = v
}

// encode writes a review in the webhook's version.
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
			Namespace: in.Namespace, Verb: in.Verb, Group: in.Group, Version: in.Version, Resource: in.Resource, Subresource: in.Subresource, Name: in.Name,
			FieldSelector: in.FieldSelector, LabelSelector: in.LabelSelector,
		}
	}
	return json.Marshal(old)
}

// question is a question as a review.
func question(a *Attributes) *authorizationv1.SubjectAccessReview {
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
		Namespace: a.Namespace, Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name,
	}
	if list := askedFields(a); len(list) > 0 {
		r.Spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: list}
	}
	if list := askedLabels(a); len(list) > 0 {
		r.Spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: list}
	}
	return r
}

// askedFields are the requirements on fields. One that cannot be said is left out: that asks for more.
func askedFields(a *Attributes) (out []metav1.FieldSelectorRequirement) {
	for _, r := range a.FieldSelector {
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: metav1.FieldSelectorOpIn, Values: []string{r.Value}})
		case selection.NotEquals, selection.NotIn:
			out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: metav1.FieldSelectorOpNotIn, Values: []string{r.Value}})
		}
	}
	return out
}

// askedLabels are the requirements on labels.
func askedLabels(a *Attributes) (out []metav1.LabelSelectorRequirement) {
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

// memorable says that a question is short enough to be remembered.
func memorable(a *Attributes) bool {
	size := len(a.Namespace) + len(a.Verb) + len(a.Group) + len(a.Version) + len(a.Resource) + len(a.Subresource) + len(a.Name) + len(a.Path)
	for _, r := range a.FieldSelector {
		size += len(r.Field) + len(r.Value)
	}
	for _, r := range a.LabelSelector {
		size += len(r.String())
	}
	return size < maxKept
}
