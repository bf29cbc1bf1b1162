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

// Server is the server as a kind sees it from inside a request. Reads are linearizable: they see every write
// acknowledged before. The objects it returns are shared: copy before changing.
type Server interface { //nolint:interfacebloat // all that a kind may ask of the server, and Reviewer is a part of it
	// User returns the user of the request.
	User() user.Info
	Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (Object, error)
	// List yields the objects of a namespace, or all. If some of them cannot be decoded, it yields the others and
	// returns an error too, which callers may ignore to whom the others are enough.
	List(ctx context.Context, gr schema.GroupResource, namespace string) (iter.Seq[Object], error)
	// Modify applies change to a copy of the object and stores it, with retries until no other writer interferes or
	// change fails. It does not validate. The object it returns is shared and read-only.
	Modify(ctx context.Context, gr schema.GroupResource, namespace, name string, dryRun bool, change func(Object) error) (Object, error)
	// Remove deletes the object as a DELETE request with these options would, but without admission: the request that
	// this is a part of has passed it.
	Remove(ctx context.Context, gr schema.GroupResource, namespace, name string, options *metav1.DeleteOptions) (Object, error)
	Reviewer
}

// Warn warns the client of a request, if it can be warned: a watch has begun to answer.
func Warn(d Server, text string) {
	if w, ok := d.(interface{ Warn(texts ...string) }); ok {
		w.Warn(text)
	}
}

// Reviewer authenticates and authorizes for kinds of reviews.
type Reviewer interface {
	ReviewToken(ctx context.Context, spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus
	ReviewAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus
	// ReviewRules lists what the user of the request may do in a namespace.
	ReviewRules(ctx context.Context, namespace string) authorizationv1.SubjectRulesReviewStatus
	// IssueToken signs a token for the service account and completes request.Status (and the defaulted spec).
	IssueToken(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error
}

// Txn is the transaction with which a write will be committed.
type Txn interface { //nolint:interfacebloat // a Server that can write
	Server
	// Claim claims a key for an owner in the same transaction. If another owner has it, the write fails with the
	// error taken; when taken is nil, Begin runs again instead, to choose another key.
	Claim(key, owner string, taken error)
	// Release releases a claimed key.
	Release(key string)
	// Create adds another object to the transaction; Delete removes one with it. If an object of that name exists,
	// the error taken is used as in Claim.
	Create(gr schema.GroupResource, obj Object, taken error)
	Delete(gr schema.GroupResource, namespace, name string)
	DryRun() bool
}
