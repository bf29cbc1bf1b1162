package server

import (
	"context"
	"errors"
	"iter"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/authz"
)

// Rules lists what a user may do in a namespace.
type Rules interface {
	Review(u user.Info, namespace string) authorizationv1.SubjectRulesReviewStatus
}

// door is the server as a kind sees it from inside one request.
type door struct {
	server *Server
	user   user.Info
}

func (s *Server) door(r *Request) *door { return &door{server: s, user: r.User} }

// User is who asks.
func (d *door) User() user.Info { return d.user }

// Get reads one object, fresh.
func (d *door) Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error) {
	return d.server.State.Get(ctx, gr, namespace, name)
}

// List reads the objects of a namespace, or all, fresh.
func (d *door) List(ctx context.Context, gr schema.GroupResource, namespace string) (iter.Seq[kind.Object], error) {
	return d.server.State.List(ctx, gr, namespace)
}

// Modify changes an object by compare and swap.
func (d *door) Modify(ctx context.Context, gr schema.GroupResource, namespace, name string, dryRun bool, change func(kind.Object) error) (kind.Object, error) {
	s := d.server
	def := s.State.Def(gr)
	r := &Request{Verb: "update", Def: def, Namespace: namespace, Name: name, User: d.user, Options: Options{DryRun: dryRun}}
	r.Clock.Begin(time.Now())
	r.causedBy(ctx)
	for try := 0; ; try++ {
		cur, err := s.State.Get(ctx, gr, namespace, name)
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
		out, at, err := s.commit(ctx, r, def, obj, cur, rev)
		if _, lost := errors.AsType[*kv.Conflict](err); lost && try < maxTries {
			continue
		}
		if err != nil {
			return nil, conflictError(def, name, err)
		}
		s.done(r, out, at, 200)
		return out, nil
	}
}

func conflictError(def *kind.Def, name string, err error) error {
	if _, lost := errors.AsType[*kv.Conflict](err); lost {
		return modified(def, name)
	}
	return err
}

// Remove deletes an object.
func (d *door) Remove(ctx context.Context, gr schema.GroupResource, namespace, name string, options *metav1.DeleteOptions) (kind.Object, error) {
	def := d.server.State.Def(gr)
	r := &Request{Verb: "delete", Def: def, Namespace: namespace, Name: name, User: d.user, admitted: true}
	r.Options.Delete = options.DeepCopy()
	r.Options.DryRun = len(options.DryRun) > 0
	obj, _, err := d.server.removeObject(ctx, r)
	return obj, err
}

// ReviewToken answers a TokenReview.
func (d *door) ReviewToken(ctx context.Context, spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	return d.server.Authn.Review(ctx, spec)
}

// ReviewAccess answers the access reviews.
func (d *door) ReviewAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	return authz.Answer(ctx, d.server.Authz, authz.Reviewed(&spec))
}

// ReviewRules lists what the asking user may do.
func (d *door) ReviewRules(_ context.Context, namespace string) authorizationv1.SubjectRulesReviewStatus {
	return d.server.Authz.Review(d.user, namespace)
}

// IssueToken signs a token for a service account.
func (d *door) IssueToken(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error {
	return d.server.Authn.Issue(ctx, account, request)
}
