package tracesource

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/server/authz"
	"proa.dev/server/state"
	"proa.dev/store"
)

// countingStore counts how often it is asked for its newest revision.
type countingStore struct {
	*store.Etcd
	reads atomic.Int64
}

func (c *countingStore) Fresh(ctx context.Context, prefix string) (int64, error) {
	c.reads.Add(1)
	return c.Etcd.Fresh(ctx, prefix)
}

// reviewer answers questions about the rights of a user, as the pipeline does, and counts them.
type reviewer struct {
	kind.Server
	user      user.Info
	rules     authz.Authorizer
	questions int
}

func (r *reviewer) User() user.Info { return r.user }

func (r *reviewer) ReviewAccess(ctx context.Context,
	spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	r.questions++
	return authz.AnswerReview(ctx, r.rules, authz.AttributesOfReview(&spec))
}

// TestListOfRefusedTracesIsCheap checks that a list of traces whose objects its reader may not get costs as many reads of the store as
// there are caches of roles, however many objects there are, and that the number of questions about rights is bounded. A right that was
// given before the request counts all the same.
func TestListOfRefusedTracesIsCheap(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	db, err := store.Embed(t.Context(), store.Config{Dir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	counting := &countingStore{Etcd: db}
	st := state.New(context.WithoutCancel(t.Context()), codec.New(scheme), counting, kinds.All(), log)
	t.Cleanup(func() {
		st.Close()
		_ = db.Close()
	})
	const objects = 3 * maxQuestions
	records := hop.NewRecorder(20 * objects)
	for i := range objects {
		records.Add(hop.Record{
			UID: types.UID(fmt.Sprint("uid ", i)), Rev: int64(i + 1), Verb: "create", Resource: "configmaps", Namespace: "default",
			Name: fmt.Sprint("config-", i), User: "alice", Code: 201, Start: time.Now(),
		})
	}
	view := state.NewRBACView(st)
	d := &reviewer{user: &user.DefaultInfo{Name: "eve"}, rules: authz.Retrying{Authorizer: authz.NewRBAC(view), Wait: view.Wait}}
	s := &Source{Records: func() *hop.Recorder { return records }}
	list := func(want int) {
		t.Helper()
		d.questions = 0
		counting.reads.Store(0)
		got, err := s.Recent(t.Context(), d, "default")
		if err != nil || len(got) != want {
			t.Errorf("she lists %d traces: %v", len(got), err)
		}
		if n := counting.reads.Load(); n > 4 { // roles, bindings, and both of the cluster
			t.Errorf("the list has cost %d reads", n)
		}
		if d.questions > maxQuestions {
			t.Errorf("the list has asked %d questions", d.questions)
		}
	}
	list(0)
	write := func(plural string, o kind.Object) {
		t.Helper()
		def := st.Def(state.RBACResource(plural))
		o.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
		value, err := st.Codec.Store(def, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Commit(t.Context(), kv.Write{Key: def.Key("default", "one"), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	newest := fmt.Sprint("config-", objects-1)
	write("roles", &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{newest}, Verbs: []string{"get"}}}})
	write("rolebindings", &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "one"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}}})
	list(1)
	if newReader(t.Context(), d).rights().MayGetAll() {
		t.Error("she may get everything")
	}
	write("clusterroles", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get"}}}})
	write("clusterrolebindings", &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "one"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "one"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}}})
	if !newReader(t.Context(), d).rights().MayGetAll() {
		t.Error("she may not get everything, though her role says so")
	}
}
