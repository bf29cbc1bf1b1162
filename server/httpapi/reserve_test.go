package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/healthz"
	"proa.dev/server/state"
)

// fullStore is a store on a disk that is nearly full: it refuses writes that may not use the reserve.
type fullStore struct{ state.Store }

// Commit refuses a transaction none of whose writes may use the reserve.
func (s fullStore) Commit(ctx context.Context, writes ...kv.Write) (int64, error) {
	if !slices.ContainsFunc(writes, func(w kv.Write) bool { return w.UseReserve }) {
		return 0, kv.ErrFull
	}
	return s.Store.Commit(ctx, writes...)
}

// TestFullDiskAcceptsDeletions checks that on a disk that is nearly full, objects can be deleted, also where that takes several
// writes, and the server itself can start. All other writes are refused.
func TestFullDiskAcceptsDeletions(t *testing.T) {
	r := newRig(t)
	r.create(configMapsResource(), configMap("plain"))
	kept := configMap("finalizer")
	kept.Finalizers = []string{"example.org/wait"}
	r.create(configMapsResource(), kept)
	r.State.Store = fullStore{r.State.Store}
	c := r.Client(r.who)
	if _, err := c.Create(t.Context(), configMapsResource(), configMap("more")); err == nil || !strings.Contains(err.Error(),
		"the write is refused") {
		t.Errorf("create: %v", err)
	}
	for _, name := range []string{"plain", "finalizer"} {
		if err := c.Delete(t.Context(), configMapsResource(), "ns", name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	marked, err := c.Get(t.Context(), configMapsResource(), "ns", "finalizer", "")
	if err != nil || marked.GetDeletionTimestamp() == nil {
		t.Fatalf("what has a finalizer is %v, %v", marked, err)
	}
	used := marked.DeepCopyObject().(*corev1.ConfigMap)
	used.Data = map[string]string{"still": "used"}
	if _, err := c.Update(t.Context(), configMapsResource(), used, ""); err == nil {
		t.Error("what is being deleted can still be used to write")
	}
	for _, group := range []string{user.NodesGroup, "system:serviceaccounts:kube-system"} {
		used.Data["by"] = group
		system := r.Client(&user.DefaultInfo{Name: "system:some", Groups: []string{group, user.SystemPrivilegedGroup}})
		o, err := system.Update(t.Context(), configMapsResource(), used, "")
		if err != nil {
			t.Fatalf("%s: %v", group, err)
		}
		used = o.DeepCopyObject().(*corev1.ConfigMap)
	}
	done := used.DeepCopyObject().(kind.Object)
	done.SetFinalizers(nil)
	if _, err := c.Update(t.Context(), configMapsResource(), done, ""); err != nil {
		t.Errorf("remove the finalizer: %v", err)
	}
	if o, err := c.Get(t.Context(), configMapsResource(), "ns", "finalizer", ""); err == nil {
		t.Errorf("it is still there: %v", o)
	}
	own := r.Client(&user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}})
	if _, err := own.Create(t.Context(), configMapsResource(), configMap("start")); err != nil {
		t.Errorf("the server itself: %v", err)
	}
}

// TestHealthDetailsOnlyForAdministrators checks that the health endpoints say why a check fails to administrators only.
func TestHealthDetailsOnlyForAdministrators(t *testing.T) {
	r := newRig(t)
	r.Paths = (&healthz.Endpoints{Checks: []healthz.Check{{Name: "storage-space",
		Probe: func(context.Context) error { return errors.New("the disk\nis full") }}}}).Handler()
	for want, who := range map[string]user.Info{
		"[-]storage-space failed: reason withheld\nreadyz check failed\n": &user.DefaultInfo{Name: "system:anonymous"},
		"[-]storage-space failed: the disk is full\nreadyz check failed\n": &user.DefaultInfo{Name: "admin",
			Groups: []string{user.SystemPrivilegedGroup}},
	} {
		r.Handler.Authn = fixedUser{who: who}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if w.Code != http.StatusInternalServerError || w.Body.String() != want {
			t.Errorf("%s reads %d %q", who.GetName(), w.Code, w.Body)
		}
	}
}
