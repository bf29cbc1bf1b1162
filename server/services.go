package server

import (
	"context"
	"errors"
	"iter"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/authz"
)

// RulesReviewer lists what a user may do in a namespace.
type RulesReviewer interface {
	Review(u user.Info, namespace string) authorizationv1.SubjectRulesReviewStatus
}

// requestServices is what a kind or an admission plugin may ask of the server while it handles a request. It implements
// kind.Server.
type requestServices struct {
	server  *Server
	user    user.Info
	request *Request
}

// services returns the services for the user of a request.
func (s *Server) services(r *Request) *requestServices {
	return &requestServices{server: s, user: r.User, request: r}
}

// Warn warns the client. The answer to a watch has begun, and has no room for warnings.
func (s *requestServices) Warn(texts ...string) {
	if s.request.Verb != "watch" {
		s.request.Warn(texts...)
	}
}

// User returns the user of the request.
func (s *requestServices) User() user.Info { return s.user }

// Get reads the newest state of one object.
func (s *requestServices) Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error) {
	return s.server.State.Get(ctx, gr, namespace, name)
}

// List reads the newest state of the objects of a namespace, or of all.
func (s *requestServices) List(ctx context.Context, gr schema.GroupResource, namespace string) (iter.Seq[kind.Object], error) {
	return s.server.State.List(ctx, gr, namespace)
}

// Modify changes an object, without admission, and tries again when another writer was faster.
func (s *requestServices) Modify(ctx context.Context, gr schema.GroupResource, namespace, name string, dryRun bool,
	change func(kind.Object) error) (kind.Object, error) {
	def := s.server.State.Def(gr)
	r := &Request{Verb: "update", Def: def, Namespace: namespace, Name: name, User: s.user, Options: Options{DryRun: dryRun}}
	r.continueClock(s.request)
	for try := 0; ; try++ {
		cur, err := s.server.State.Get(ctx, gr, namespace, name)
		if err != nil {
			return nil, err
		}
		rev, err := revision(cur)
		if err != nil {
			return nil, err
		}
		obj := cur.DeepCopyObject().(kind.Object)
		if err := change(obj); err != nil {
			return nil, err
		}
		out, at, err := s.server.commit(ctx, r, obj, cur, rev)
		r.Clock.Done(hop.Commit)
		if _, isConflict := errors.AsType[*kv.Conflict](err); isConflict && try < maxTries {
			continue
		}
		if err != nil {
			return nil, conflictError(def, name, err)
		}
		s.server.recordWrite(r, out, at, apistatus.CodeOK)
		return out, nil
	}
}

// conflictError makes a conflict of the store the 409 that clients know, and returns other errors as they are.
func conflictError(def *kind.Def, name string, err error) error {
	if _, isConflict := errors.AsType[*kv.Conflict](err); isConflict {
		return apistatus.Modified(def, name)
	}
	return err
}

// Remove deletes an object, without admission.
func (s *requestServices) Remove(ctx context.Context, gr schema.GroupResource, namespace, name string,
	options *metav1.DeleteOptions) (kind.Object, error) {
	def := s.server.State.Def(gr)
	r := &Request{Verb: "delete", Def: def, Namespace: namespace, Name: name, User: s.user, admitted: true}
	r.Options.Delete = options.DeepCopy()
	r.Options.DryRun = len(options.DryRun) > 0
	r.continueClock(s.request)
	obj, _, err := s.server.deleteObject(ctx, r)
	return obj, err
}

// ReviewToken answers a TokenReview.
func (s *requestServices) ReviewToken(ctx context.Context, spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	return s.server.Authn.Review(ctx, spec)
}

// ReviewAccess answers a SubjectAccessReview.
func (s *requestServices) ReviewAccess(ctx context.Context,
	spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	return authz.AnswerReview(ctx, s.server.Authz, authz.AttributesOfReview(&spec))
}

// ReviewRules lists what the user of the request may do in a namespace.
func (s *requestServices) ReviewRules(_ context.Context, namespace string) authorizationv1.SubjectRulesReviewStatus {
	return s.server.Authz.Review(s.user, namespace)
}

// IssueToken signs a token for a service account.
func (s *requestServices) IssueToken(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error {
	return s.server.Authn.Issue(ctx, account, request)
}
