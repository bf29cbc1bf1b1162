package kind

import (
	"context"
	"iter"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Door is the server as a kind sees it from inside a request. Reads are fresh: they see every write
// acknowledged before. Objects it returns are shared: copy before changing.
type Door interface { //nolint:interfacebloat // all that a kind may ask of the server, and Reviewer is a part of it
	// User is who asks.
	User() user.Info
	Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (Object, error)
	// List yields the objects of a namespace, or all. If some of them cannot be decoded it yields the others, and returns an error that
	// those may ignore to whom the others are enough.
	List(ctx context.Context, gr schema.GroupResource, namespace string) (iter.Seq[Object], error)
	// Modify changes a copy of the object and stores it if the revision still fits, again and again until
	// it does or change fails. It does not validate: the caller has checked what it does. What
	// it returns is shared and read-only.
	Modify(ctx context.Context, gr schema.GroupResource, namespace, name string, dryRun bool, change func(Object) error) (Object, error)
	// Remove deletes the object as a DELETE request with these options would, but for admission: that has seen the request which this is
	// a part of.
	Remove(ctx context.Context, gr schema.GroupResource, namespace, name string, options *metav1.DeleteOptions) (Object, error)
	Reviewer
}

// Reviewer answers the questions of hops 2 and 3.
type Reviewer interface {
	ReviewToken(ctx context.Context, spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus
	ReviewAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus
	// ReviewRules lists what the asking user may do in a namespace.
	ReviewRules(ctx context.Context, namespace string) authorizationv1.SubjectRulesReviewStatus
	// IssueToken signs a token for the service account and completes request.Status (and the defaulted spec).
	IssueToken(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error
}

// Txn is the transaction a write will be committed with.
type Txn interface { //nolint:interfacebloat // a Door that can write
	Door
	// Claim takes a key for an owner in the same transaction. If it is taken by another, the
	// write fails with taken; when taken is nil, Begin runs again instead, to choose another key.
	Claim(key, owner string, taken error)
	// Release gives a claimed key back.
	Release(key string)
	// Create adds another object to the transaction, Delete removes one with it. The same rule about taken
	// holds when an object of that name already exists.
	Create(gr schema.GroupResource, obj Object, taken error)
	Delete(gr schema.GroupResource, namespace, name string)
	DryRun() bool
}
