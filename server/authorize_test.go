package server

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/server/authz"
	"proa.dev/server/state"
	"proa.dev/store"
)

// laggingStore is a store whose watches deliver no events until Fresh is called.
type laggingStore struct {
	*store.Etcd
	freshCalled chan struct{}
	once        sync.Once
}

func (l *laggingStore) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		for b, err := range l.Etcd.Watch(ctx, prefix, after) {
			select {
			case <-l.freshCalled:
			case <-ctx.Done():
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func (l *laggingStore) Fresh(ctx context.Context, prefix string) (int64, error) {
	l.once.Do(func() { close(l.freshCalled) })
	return l.Etcd.Fresh(ctx, prefix)
}

// rbacWithReviewer is the RBAC authorizer with the rules reviewer that the pipeline also needs.
type rbacWithReviewer struct {
	*authz.RBAC
	RulesReviewer
}

// TestNewPermissionsAreEffectiveAtOnce checks that a user has a permission as soon as the write that granted it has been
// answered, however far the caches lag behind.
func TestNewPermissionsAreEffectiveAtOnce(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	db, err := store.Embed(t.Context(), store.Config{Dir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	slow := &laggingStore{Etcd: db, freshCalled: make(chan struct{})}
	st := state.New(context.WithoutCancel(t.Context()), codec.New(scheme), slow, kinds.All(), log)
	t.Cleanup(func() {
		st.Close()
		_ = db.Close()
	})
	view := state.NewRBACView(st)
	rules := authz.NewRBAC(view)
	eve := &user.DefaultInfo{Name: "eve"}
	attrs := authz.Attributes{User: eve, Verb: "get", IsResource: true, Version: "v1", Resource: "configmaps", Namespace: "default",
		Name: "mine"}
	for _, plural := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		if err := st.Cache(st.Def(state.RBACResource(plural))).WaitFor(t.Context(), 0); err != nil { // the cache is loaded, and empty
			t.Fatal(err)
		}
	}
	for _, o := range []struct {
		plural string
		kind.Object
	}{
		{"roles", &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}}}},
		{"rolebindings", &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "one"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}}}},
	} {
		def := st.Def(state.RBACResource(o.plural))
		o.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
		value, err := st.Codec.Store(def, o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Commit(t.Context(), kv.Write{Key: def.Key("default", "one"), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	if d, _, _ := rules.Authorize(t.Context(), attrs); d == authz.Allow {
		t.Fatal("the caches know the role already: the test shows nothing")
	}
	s := New(Config{State: st, Authz: rbacWithReviewer{RBAC: rules}, Log: log})
	if err := s.AuthorizeAttributes(t.Context(), &attrs, nil); err != nil {
		t.Error(err)
	}
	attrs.Name, attrs.Verb = "", "list"
	if err := s.AuthorizeAttributes(t.Context(), &attrs, nil); err == nil {
		t.Error("eve is allowed without a permission")
	}
}
