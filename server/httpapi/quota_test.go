package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/schema"
	"proa.dev/server/state"
	"proa.dev/server/validate"
)

// secondServer returns another server with the same store, but with its own caches and locks.
func (r *rig) secondServer() *rig {
	r.Helper()
	scheme, err := kinds.Scheme()
	if err != nil {
		r.Fatal(err)
	}
	defs := kinds.All()
	log := slog.New(slog.DiscardHandler)
	st := state.New(context.WithoutCancel(r.Context()), codec.New(scheme), r.store, defs, log)
	r.Cleanup(st.Close)
	v := state.NewVersions(scheme, defs)
	s := server.New(server.Config{State: st, Authz: allowAll{}, Owner: schema.New(scheme, v, v), Recorder: hop.NewRecorder(100), Log: log,
		Check: r.Check})
	return &rig{TB: r.TB, Server: s, Handler: New(Config{Server: s}), store: r.store, who: r.who}
}

// validatingPlugins returns the validating admission plugins that are on by default.
func validatingPlugins(t *testing.T) []server.Plugin {
	t.Helper()
	plugins, err := validate.Plugins(nil)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(plugins, func(p server.Plugin) bool { return p.DisabledByDefault })
}

// quota creates a quota and sets its status, as the controller would.
func (r *rig) quota(name string, hard corev1.ResourceList) {
	r.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	q = r.create(quotasResource(), q).DeepCopyObject().(*corev1.ResourceQuota)
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{}}
	for name := range hard {
		q.Status.Used[name] = resource.MustParse("0")
	}
	if _, err := r.request("update", "resourcequotas", "ns", name, func(q2 *server.Request) {
		q2.Object, q2.Sub = q, q2.Def.Sub("status")
	}); err != nil {
		r.Fatal(err)
	}
}

func quotasResource() runtimeschema.GroupResource {
	return runtimeschema.GroupResource{Resource: "resourcequotas"}
}

func (r *rig) used(name string, of corev1.ResourceName) int64 {
	r.Helper()
	o, err := r.State.Get(r.Context(), quotasResource(), "ns", name)
	if err != nil {
		r.Fatal(err)
	}
	q := o.(*corev1.ResourceQuota).Status.Used[of]
	return q.Value()
}

func resourceList(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, p := range pairs {
		name, q, _ := strings.Cut(p, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return list
}

// TestQuotaHoldsUnderLoad makes fifty clients of three servers create more objects than two quotas allow. Exactly as many as
// the stricter quota allows must be created, the status of both must say so, and neither status may ever have said more.
func TestQuotaHoldsUnderLoad(t *testing.T) {
	r := newRig(t)
	r.Check = validatingPlugins(t)
	const hard, clients, each = 40, 50, 3
	r.quota("tight", resourceList("count/configmaps=40"))
	r.quota("wide", resourceList("configmaps=1000"))
	begin, err := r.store.Fresh(t.Context(), "/registry/resourcequotas/")
	if err != nil {
		t.Fatal(err)
	}
	servers := []*rig{r, r.secondServer(), r.secondServer()}
	var created, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for j := range each {
				s := servers[(i+j)%len(servers)]
				_, err := s.Client(s.who).Create(t.Context(), configMapsResource(), configMap(fmt.Sprintf("m%d-%d", i, j)))
				switch {
				case err == nil:
					created.Add(1)
				case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: tight, requested: count/configmaps=1, used: count/configmaps=40, limited: count/configmaps=40"):
					refused.Add(1)
				default:
					t.Errorf("create: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if created.Load() != hard || refused.Load() != clients*each-hard {
		t.Errorf("%d made and %d refused, want %d and %d", created.Load(), refused.Load(), hard, clients*each-hard)
	}
	all, err := r.State.List(t.Context(), configMapsResource(), "ns")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for range all {
		n++
	}
	if strict, generous := r.used("tight", "count/configmaps"), r.used("wide",
		"configmaps"); n != hard || strict != hard || generous != hard {
		t.Errorf("%d objects, %d and %d used; want %d", n, strict, generous, hard)
	}
	r.expectGradualUse(begin, hard)
}

// expectGradualUse checks all statuses of the quotas since a revision: each adds one, up to the limit.
func (r *rig) expectGradualUse(since, limit int64) {
	r.Helper()
	def := r.State.Def(quotasResource())
	now, err := r.store.Fresh(r.Context(), def.Prefix())
	if err != nil {
		r.Fatal(err)
	}
	last := map[string]int64{}
	for batch, err := range r.store.Watch(r.Context(), def.Prefix(), since) {
		if err != nil {
			r.Fatal(err)
		}
		for _, c := range batch.Changes {
			o, err := r.State.Codec.Load(def, c.Pair)
			if err != nil {
				r.Fatal(err)
			}
			for _, q := range o.(*corev1.ResourceQuota).Status.Used {
				if q.Value() != last[o.GetName()]+1 || q.Value() > limit {
					r.Errorf("quota %s went from %d to %d", o.GetName(), last[o.GetName()], q.Value())
				}
				last[o.GetName()] = q.Value()
			}
		}
		if batch.Rev >= now {
			return
		}
	}
}

// TestQuotaIsChargedOnce checks that a quota is charged for each created object once, and not for dry runs, patches and creates that
// fail.
func TestQuotaIsChargedOnce(t *testing.T) {
	r := newRig(t)
	r.Check = validatingPlugins(t)
	r.quota("q", resourceList("configmaps=10", "requests.storage=10Gi"))
	spent := func(title string, want int64) {
		t.Helper()
		if got := r.used("q", "configmaps"); got != want {
			t.Errorf("%s: %d used, want %d", title, got, want)
		}
	}
	if _, err := r.request("create", "configmaps", "ns", "",
		func(q *server.Request) { q.Object = configMap("dry"); q.Options.DryRun = true }); err != nil {
		t.Fatal(err)
	}
	spent("a dry run", 0)
	r.create(configMapsResource(), configMap("x"))
	spent("a create", 1)
	if _, err := r.Client(r.who).Create(t.Context(), configMapsResource(), configMap("x")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same name again: %v", err)
	}
	spent("a create of what is there", 1)
	if _, err := r.request("patch", "configmaps", "ns", "x", func(q *server.Request) {
		q.Patch, q.Body = types.MergePatchType, []byte(`{"data":{"k":"v"}}`)
	}); err != nil {
		t.Fatal(err)
	}
	spent("a patch", 1)
	if _, err := r.request("patch", "configmaps", "ns", "y", func(q *server.Request) {
		q.Patch, q.Body = types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"y"}}`)
		q.Options.Manager = "m"
	}); err != nil {
		t.Fatal(err)
	}
	spent("an apply that creates", 2)
	if _, err := r.request("delete", "configmaps", "ns", "x", nil); err != nil {
		t.Fatal(err)
	}
	spent("a deletion, which the controller will see", 2)
	bad := configMap("Not A Name")
	if _, err := r.Client(r.who).Create(t.Context(), configMapsResource(), bad); !apierrors.IsInvalid(err) {
		t.Errorf("a bad name: %v", err)
	}
	spent("a create that is refused", 2)
}

// TestQuotaGrowthUnderLoad makes many clients enlarge claims at the same time: the growth is charged, not the whole size.
func TestQuotaGrowthUnderLoad(t *testing.T) {
	r := newRig(t)
	claims := runtimeschema.GroupResource{Resource: "persistentvolumeclaims"}
	const n = 16
	for i := range n {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("c%d", i)}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.Resources.Requests = resourceList("storage=1")
		claim.Spec.StorageClassName = new("grows")
		claim.Spec.VolumeName = "v"
		claim = r.create(claims, claim).DeepCopyObject().(*corev1.PersistentVolumeClaim)
		claim.Status.Phase = corev1.ClaimBound
		if _, err := r.request("update", "persistentvolumeclaims", "ns", claim.Name,
			func(q *server.Request) { q.Object, q.Sub = claim, q.Def.Sub("status") }); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range validatingPlugins(t) {
		if p.Name == "ResourceQuota" {
			r.Check = append(r.Check, p)
		}
	}
	r.quota("q", resourceList("requests.storage=20"))
	var grown atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, err := r.request("patch", "persistentvolumeclaims", "ns", fmt.Sprintf("c%d", i), func(q *server.Request) {
				q.Patch, q.Body = types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"4"}}}}`)
			})
			if err == nil {
				grown.Add(1)
			} else if !apierrors.IsForbidden(err) {
				t.Errorf("patch: %v", err)
			}
		})
	}
	wg.Wait()
	if grown.Load() != 6 || r.used("q", "requests.storage") != 18 {
		t.Errorf("%d grew, %d used; 6 times 3 fit into 20", grown.Load(), r.used("q", "requests.storage"))
	}
}

// TestQuotaErrorHasGeneratedName checks that the error for an object with generateName has the whole generated name, because
// validating plugins see the object as it would be stored.
func TestQuotaErrorHasGeneratedName(t *testing.T) {
	r := newRig(t)
	r.Check = validatingPlugins(t)
	r.quota("none", resourceList("configmaps=0"))
	m := configMap("")
	m.SetGenerateName("made-")
	_, err := r.Client(r.who).Create(t.Context(), configMapsResource(), m)
	if err == nil || !regexp.MustCompile(`^configmaps "made-[a-z0-9]{5}" is forbidden: exceeded quota: none`).MatchString(err.Error()) {
		t.Errorf("create: %v", err)
	}
}

// TestQuotaRefusesAtHop6 checks that the record of a write names the hop of admission also if it is refused when the transaction is made,
// as by a quota that others have used up meanwhile.
func TestQuotaRefusesAtHop6(t *testing.T) {
	r := newRig(t)
	r.Check = []server.Plugin{{Name: "Late", Admit: func(_ context.Context, a *kind.Admission) error {
		a.AddToTransaction(func(context.Context, kind.Replacer) error { return a.Forbid(errors.New("exceeded quota")) })
		return nil
	}}}
	if _, err := r.Client(r.who).Create(t.Context(), configMapsResource(), configMap("refused")); !apierrors.IsForbidden(err) {
		t.Fatalf("create: %v", err)
	}
	records := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Name == "refused" })
	if len(records) != 1 || records[0].Refused != hop.Validate {
		t.Errorf("%+v", records)
	}
}
