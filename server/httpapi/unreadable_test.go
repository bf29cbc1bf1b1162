package httpapi

import (
	"context"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/lib/gr"
	"proa.dev/kv"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/authz"
	"proa.dev/server/collection"
)

const brokenKey = "/registry/secrets/ns/broken"

// storeUndecryptableSecret creates a Secret, and writes one that cannot be decrypted directly to the store.
func storeUndecryptableSecret(t *testing.T, r *rig) {
	t.Helper()
	r.create(gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "good"}})
	if _, err := r.store.Commit(t.Context(), kv.Write{Key: brokenKey, Value: []byte("k8s:enc:aesgcm:v1:lost:xxxx")}); err != nil {
		t.Fatal(err)
	}
}

// names returns the names of a list.
func names(l *collection.List) (out []string) {
	for _, e := range l.Items {
		out = append(out, e.Object().GetName())
	}
	return out
}

// TestUndecodableObjectErrorNamesKey checks that every verb returns an error with the key of an object that cannot be decoded,
// and never NotFound.
func TestUndecodableObjectErrorNamesKey(t *testing.T) {
	r := newRig(t)
	storeUndecryptableSecret(t, r)
	corrupt := func(what string, err error) {
		t.Helper()
		st := apistatus.Of(err)
		if err == nil || st.Code != 500 || st.Reason != metav1.StatusReasonInternalError ||
			!strings.Contains(st.Message, "StorageError: corrupt object, Code: 7, Key: "+brokenKey+",") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := r.request("get", "secrets", "ns", "broken", nil)
	corrupt("get", err)
	_, err = r.request("list", "secrets", "ns", "", func(q *server.Request) {
		q.Options.List.Fields = fields.OneTermEqualSelector("metadata.name", "broken")
	})
	corrupt("list by name", err)
	_, err = r.request("watch", "secrets", "ns", "", func(q *server.Request) {
		q.Options.List.Fields = fields.OneTermEqualSelector("metadata.name", "broken")
	})
	corrupt("watch by name", err)
	_, err = r.request("update", "secrets", "ns", "broken", func(q *server.Request) {
		q.Object = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "broken"}}
	})
	corrupt("update", err)
	_, err = r.request("patch", "secrets", "ns", "broken",
		func(q *server.Request) { q.Patch, q.Body = types.MergePatchType, []byte(`{"data":{}}`) })
	corrupt("patch", err)
	_, err = r.request("delete", "secrets", "ns", "broken", nil)
	corrupt("delete", err)
	_, err = r.State.List(t.Context(), gr.Secrets, "ns")
	corrupt("a rule that is read by a plugin", err)
	_, err = r.request("create", "secrets", "ns", "", func(q *server.Request) {
		q.Object = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "broken"}}
	})
	if !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), "cannot be decoded: StorageError: corrupt object") {
		t.Errorf("create: %v", err)
	}
}

// TestUndecodableObjectDoesNotHideOthers checks that lists and watches show all other objects with a warning, deleting the
// collection deletes all others, and the objects that cannot be decoded are counted.
func TestUndecodableObjectDoesNotHideOthers(t *testing.T) {
	r := newRig(t)
	storeUndecryptableSecret(t, r)
	var warnings []string
	for name, change := range map[string]func(*server.Request){
		"list": func(*server.Request) {}, "list in pages": func(q *server.Request) { q.Options.List.Limit = 1 },
		"list at a past revision": func(q *server.Request) {
			q.Options.List.Match, q.Options.List.ResourceVersion = metav1.ResourceVersionMatchExact, "1000000"
			if page, err := r.State.Store.List(t.Context(), kv.Range{Prefix: "/"}); err == nil {
				q.Options.List.ResourceVersion = strconv.FormatInt(page.Rev, 10)
			}
		},
	} {
		var q *server.Request
		res, err := r.request("list", "secrets", "ns", "", func(x *server.Request) { q = x; change(x) })
		if err != nil || strings.Join(names(res.List), " ") != "good" {
			t.Errorf("%s: %+v, %v", name, res, err)
			continue
		}
		if warnings = q.Warnings; len(warnings) != 1 || !strings.Contains(warnings[0], brokenKey) {
			t.Errorf("%s: the warnings are %q", name, warnings)
		}
	}
	var q *server.Request
	res, err := r.request("watch", "secrets", "ns", "", func(x *server.Request) { q = x })
	if err != nil || len(res.Watch.State) != 1 || len(q.Warnings) != 1 {
		t.Errorf("watch: %+v, %q, %v", res, q.Warnings, err)
	} else {
		res.Watch.Watcher.Close()
		res.Watch.Ended()
	}
	if n := r.State.Unreadable(); n["secrets"] != 1 || len(n) != 1 {
		t.Errorf("the numbers are %v", n)
	}
	if _, err := r.request("deletecollection", "secrets", "ns", "", nil); err == nil || !strings.Contains(err.Error(), brokenKey) {
		t.Errorf("delete all: %v", err)
	}
	if _, err := r.request("get", "secrets", "ns", "good", nil); !apierrors.IsNotFound(err) {
		t.Errorf("the other was not deleted: %v", err)
	}
}

// denyUnsafeDelete is an authorizer that allows everything but deleting objects that cannot be decoded.
type denyUnsafeDelete struct{ allowAll }

func (denyUnsafeDelete) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.Verb == "unsafe-delete-ignore-read-errors" {
		return authz.NoOpinion, "", nil
	}
	return authz.Allow, "", nil
}

// TestUndecodableObjectIsDeleted checks that an object that cannot be decoded can be deleted with a special permission and
// option, and that an object that can be decoded cannot be deleted in this way.
func TestUndecodableObjectIsDeleted(t *testing.T) {
	r := newRig(t)
	storeUndecryptableSecret(t, r)
	unsafely := func(name string, dry bool) error {
		_, err := r.request("delete", "secrets", "ns", name, func(q *server.Request) {
			q.Options.Delete = &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}
			q.Options.DryRun = dry
		})
		return err
	}
	all := r.Authz
	r.Authz = denyUnsafeDelete{}
	if err := unsafely("broken", false); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `not permitted to do "unsafe-delete-ignore-read-errors"`) {
		t.Errorf("without the right to: %v", err)
	}
	r.Authz = all
	if err := unsafely("good", false); err == nil || !strings.Contains(err.Error(), "the object is decodable from storage") {
		t.Errorf("of a good one: %v", err)
	}
	if err := unsafely("none", false); !apierrors.IsNotFound(err) {
		t.Errorf("of none: %v", err)
	}
	if _, err := r.request("deletecollection", "secrets", "ns", "", func(q *server.Request) {
		q.Options.Delete = &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}
	}); !apierrors.IsInvalid(err) {
		t.Errorf("of a collection: %v", err)
	}
	if err := unsafely("broken", true); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if _, err := r.request("get", "secrets", "ns", "broken", nil); !apierrors.IsInternalError(err) {
		t.Errorf("after a dry run: %v", err)
	}
	if err := unsafely("broken", false); err != nil {
		t.Error(err)
	}
	if _, err := r.request("get", "secrets", "ns", "broken", nil); !apierrors.IsNotFound(err) {
		t.Errorf("afterwards: %v", err)
	}
	if n := r.State.Unreadable(); len(n) != 0 {
		t.Errorf("the numbers are %v", n)
	}
	r.create(gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "broken"}})
}
