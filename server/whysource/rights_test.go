package whysource

import (
	"context"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
	"proa.dev/why"
)

// refusing refuses everything, after it has waited for caches.
type refusing struct {
	kind.Server
	waits, questions int
}

func (*refusing) User() user.Info { return &user.DefaultInfo{Name: "eve"} }

func (r *refusing) ReviewAccess(ctx context.Context,
	spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	r.questions++
	none := authz.Func(func(context.Context, authz.Attributes) (authz.Decision, string, error) {
		return authz.NoOpinion, "", nil
	})
	wait := func(context.Context) error { r.waits++; return nil }
	return authz.AnswerReview(ctx, authz.Retrying{Authorizer: none, Wait: wait}, authz.AttributesOfReview(&spec))
}

// TestRefusalsWaitOnce checks that the questions about rights of one request wait for the caches of roles once: waiting costs reads of
// the store.
func TestRefusalsWaitOnce(t *testing.T) {
	d := &refusing{}
	r, ctx := (&Source{}).reader(t.Context(), d)
	a := &why.Attempt{ChosenNode: "node-1"}
	for i := range 100 {
		a.Nodes = append(a.Nodes, why.NodeReason{Node: fmt.Sprint("node-", i)})
	}
	r.hideNodes(ctx, a, &corev1.Pod{})
	if d.waits != 1 || a.ChosenNode != "" || a.Nodes[99].Node != "" {
		t.Errorf("it has waited %d times, and shows %q and %q", d.waits, a.ChosenNode, a.Nodes[99].Node)
	}
}

// TestQuestionsAreBounded checks that one request asks a bounded number of questions about rights, however many nodes there are, and hides
// those that it has not asked about.
func TestQuestionsAreBounded(t *testing.T) {
	d := &refusing{}
	r, ctx := (&Source{}).reader(t.Context(), d)
	for attempt := range 10 {
		a := &why.Attempt{}
		for i := range 1000 {
			a.Nodes = append(a.Nodes, why.NodeReason{Node: fmt.Sprint("node-", attempt, "-", i)})
		}
		if r.hideNodes(ctx, a, &corev1.Pod{}); a.Nodes[999].Node != "" || !a.Nodes[999].Hidden {
			t.Errorf("attempt %d shows %+v", attempt, a.Nodes[999])
		}
	}
	if d.questions > maxQuestions {
		t.Errorf("%d questions", d.questions)
	}
}

// TestDiscoveryIsRefused checks that a user who may not ask for discovery is not told either which custom resources there are.
func TestDiscoveryIsRefused(t *testing.T) {
	r, ctx := (&Source{}).reader(t.Context(), &refusing{})
	if found, err := r.Discover(ctx); !apierrors.IsForbidden(err) {
		t.Errorf("%v, %v", found, err)
	}
}
