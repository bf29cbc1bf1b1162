package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/authz"
	"proa.dev/server/collection"
	"proa.dev/server/encode"
	"proa.dev/server/localclient"
	"proa.dev/server/responsewriter"
	"proa.dev/server/schema"
	"proa.dev/server/state"
	"proa.dev/store"
)

// allowAll is an authorizer that allows everything.
type allowAll struct{}

func (allowAll) Authorize(context.Context, authz.Attributes) (authz.Decision, string, error) {
	return authz.Allow, "", nil
}

func (allowAll) Review(user.Info, string) authorizationv1.SubjectRulesReviewStatus {
	return authorizationv1.SubjectRulesReviewStatus{}
}

// rig is a pipeline and its HTTP handler over an embedded etcd.
type rig struct {
	testing.TB
	*server.Server
	*Handler
	store   *store.Etcd
	follows bool // the State watches CustomResourceDefinitions
	who     user.Info
}

func newRig(t testing.TB) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	db, err := store.Embed(t.Context(), store.Config{Dir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	defs := kinds.All()
	st := state.New(context.WithoutCancel(t.Context()), codec.New(scheme), db, defs, log)
	t.Cleanup(func() {
		st.Close()
		_ = db.Close()
	})
	v := state.NewVersions(scheme, defs)
	s := server.New(server.Config{State: st, Authz: allowAll{}, Owner: schema.New(scheme, v, v), Recorder: hop.NewRecorder(100), Log: log})
	r := &rig{TB: t, Server: s, Handler: New(Config{Server: s}), store: db, who: &user.DefaultInfo{Name: "tester"}}
	cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{netip.MustParsePrefix("10.96.0.0/24").String()}}}
	r.create(runtimeschema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}, cidr)
	return r
}

// Client returns a client in the same process.
func (r *rig) Client(who user.Info) client.Client { return localclient.New(r.Server, who) }

func (r *rig) create(gr runtimeschema.GroupResource, o kind.Object) kind.Object {
	r.Helper()
	out, err := r.Client(r.who).Create(r.Context(), gr, o)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// request sends one request through the pipeline, without HTTP.
func (r *rig) request(verb, resource, namespace, name string, change func(*server.Request)) (*server.Response, error) {
	r.Helper()
	def := r.State.Def(runtimeschema.ParseGroupResource(resource))
	q := &server.Request{Verb: verb, Def: def, Namespace: namespace, Name: name, User: r.who, Agent: "test"}
	q.Options.Validation = metav1.FieldValidationStrict
	if change != nil {
		change(q)
	}
	return r.Serve(r.Context(), q)
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"a": "b"}}
}

func configMapsResource() runtimeschema.GroupResource {
	return runtimeschema.GroupResource{Resource: "configmaps"}
}

func TestEveryWriteIsRecorded(t *testing.T) {
	r := newRig(t)
	out := r.create(configMapsResource(), configMap("x"))
	recs := r.Recorder.Of(out.GetUID())
	if len(recs) != 1 {
		t.Fatalf("%d records of one write", len(recs))
	}
	rec := recs[0]
	if strconv.FormatInt(rec.Rev, 10) != out.GetResourceVersion() || rec.Verb != "create" || rec.Resource != "configmaps" ||
		rec.User != "tester" || rec.Code != http.StatusCreated {
		t.Errorf("record %+v of %s", rec, out.GetResourceVersion())
	}
	for _, h := range []hop.Hop{hop.Authorize, hop.Mutate, hop.Schema, hop.Validate, hop.Commit} {
		if rec.Took[h] <= 0 {
			t.Errorf("hop %s took no time", h)
		}
	}
	if _, err := r.request("create", "configmaps", "ns", "",
		func(q *server.Request) { q.Object = configMap("dry"); q.Options.DryRun = true }); err != nil {
		t.Fatal(err)
	}
	if n := r.Recorder.Len(); n != 2 { // including the IP range of Services
		t.Errorf("%d records: a dry run is not a write", n)
	}
}

func TestConcurrentPatchesLoseNothing(t *testing.T) {
	r := newRig(t)
	r.create(configMapsResource(), configMap("x"))
	const n = 40
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for {
				_, err := r.request("patch", "configmaps", "ns", "x", func(q *server.Request) {
					q.Patch = types.MergePatchType
					q.Body = fmt.Appendf(nil, `{"data":{"k%d":"v"}}`, i)
				})
				if apierrors.IsConflict(err) { // as a client would do
					continue
				}
				if err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
	wg.Wait()
	o, err := r.State.Get(t.Context(), configMapsResource(), "ns", "x")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(o.(*corev1.ConfigMap).Data); got != n+1 {
		t.Errorf("%d keys, want %d", got, n+1)
	}
}

func TestStaleUpdateIsRefused(t *testing.T) {
	r := newRig(t)
	first := r.create(configMapsResource(), configMap("x")).(*corev1.ConfigMap)
	second := first.DeepCopy()
	second.Data["a"] = "c"
	if _, err := r.Client(r.who).Update(t.Context(), configMapsResource(), second, ""); err != nil {
		t.Fatal(err)
	}
	first.Data["a"] = "d"
	_, err := r.Client(r.who).Update(t.Context(), configMapsResource(), first, "")
	const want = `Operation cannot be fulfilled on configmaps "x": the object has been modified; please apply your changes to the latest version and try again`
	if !apierrors.IsConflict(err) || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestUpdateWithoutChangeWritesNothing(t *testing.T) {
	r := newRig(t)
	before := r.create(configMapsResource(), configMap("x")).(*corev1.ConfigMap)
	now, err := r.Client(r.who).Update(t.Context(), configMapsResource(), before.DeepCopy(), "")
	if err != nil {
		t.Fatal(err)
	}
	if now.GetResourceVersion() != before.ResourceVersion {
		t.Errorf("revision moved from %s to %s", before.ResourceVersion, now.GetResourceVersion())
	}
}

func service(name string, nodePort int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, NodePort: nodePort}}}}
	if nodePort != 0 {
		s.Spec.Type = corev1.ServiceTypeNodePort
	}
	return s
}

// TestClaims checks that addresses and ports are claimed in the transaction of their Service, or the Service is not created.
func TestClaims(t *testing.T) {
	r := newRig(t)
	services := runtimeschema.GroupResource{Resource: "services"}
	var mu sync.Mutex
	var wg sync.WaitGroup
	ips := map[string]string{}
	for i := range 60 {
		wg.Go(func() {
			o, err := r.Client(r.who).Create(t.Context(), services, service(fmt.Sprint("s", i), 0))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ip := o.(*corev1.Service).Spec.ClusterIP
			if other, taken := ips[ip]; taken || ip == "" {
				t.Errorf("%s and %s both have %q", other, o.GetName(), ip)
			}
			ips[ip] = o.GetName()
		})
	}
	wg.Wait()
	addresses := runtimeschema.GroupResource{Group: "networking.k8s.io", Resource: "ipaddresses"}
	count := func() (n int) {
		all, err := r.State.List(t.Context(), addresses, "")
		if err != nil {
			t.Fatal(err)
		}
		for range all {
			n++
		}
		return n
	}
	if n := count(); n != 60 {
		t.Errorf("%d IPAddress objects for 60 services", n)
	}
	created := 0
	for i := range 8 {
		wg.Go(func() {
			_, err := r.Client(r.who).Create(t.Context(), services, service(fmt.Sprint("p", i), 30007))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				created++
			} else if !apierrors.IsInvalid(err) {
				t.Errorf("a taken port: %v", err)
			}
		})
	}
	wg.Wait()
	if created != 1 {
		t.Errorf("%d services got the same node port", created)
	}
	if err := r.Client(r.who).DeleteAll(t.Context(), services, "ns", nil, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d IPAddress objects are left", n)
	}
	if _, err := r.Client(r.who).Create(t.Context(), services, service("again", 30007)); err != nil {
		t.Errorf("the port was not given back: %v", err)
	}
}

func TestDeletion(t *testing.T) {
	r := newRig(t)
	c := r.Client(r.who)
	held := configMap("held")
	held.Finalizers = []string{"example.com/wait"}
	before := r.create(configMapsResource(), held)
	wrong := types.UID("other")
	if err := c.Delete(t.Context(), configMapsResource(), "ns", "held",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
		t.Errorf("a wrong UID: %v", err)
	}
	if err := c.Delete(t.Context(), configMapsResource(), "ns", "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o, err := r.State.Get(t.Context(), configMapsResource(), "ns", "held")
	if err != nil || o.GetDeletionTimestamp() == nil {
		t.Fatalf("want it held and marked: %v, %v", o, err)
	}
	next := o.DeepCopyObject().(kind.Object)
	next.SetFinalizers(nil)
	if _, err := c.Update(t.Context(), configMapsResource(), next, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.State.Get(t.Context(), configMapsResource(), "ns", "held"); !apierrors.IsNotFound(err) {
		t.Errorf("the last finalizer is gone and the object is not: %v", err)
	}
	if before.GetUID() == "" {
		t.Error("no UID")
	}
	r.create(configMapsResource(), configMap("front"))
	foreground := metav1.DeletePropagationForeground
	if err := c.Delete(t.Context(), configMapsResource(), "ns", "front", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	if o, err := r.State.Get(t.Context(), configMapsResource(), "ns",
		"front"); err != nil || o.GetFinalizers()[0] != metav1.FinalizerDeleteDependents {
		t.Errorf("foreground: %v, %v", o, err)
	}
}

// TestPages checks that all pages of a list are of one revision; when that is compacted, the client gets a token for the rest.
func TestPages(t *testing.T) {
	r := newRig(t)
	for i := range 10 {
		r.create(configMapsResource(), configMap(fmt.Sprintf("c%d", i)))
	}
	page := func(token string) (*collection.List, error) {
		res, err := r.request("list", "configmaps", "ns", "",
			func(q *server.Request) { q.Options.List.Limit, q.Options.List.Continue = 4, token })
		if err != nil {
			return nil, err
		}
		return res.List, nil
	}
	first, err := page("")
	if err != nil || len(first.Items) != 4 || *first.Meta.RemainingItemCount != 6 {
		t.Fatalf("first page %+v, %v", first, err)
	}
	if err := r.Client(r.who).Delete(t.Context(), configMapsResource(), "ns", "c5", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.create(configMapsResource(), configMap("c55"))
	second, err := page(first.Meta.Continue)
	if err != nil || len(second.Items) != 4 || second.Meta.ResourceVersion != first.Meta.ResourceVersion ||
		second.Items[1].Object().GetName() != "c5" {
		t.Fatalf("second page %+v, %v", second, err)
	}
	rev, err := r.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.store.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	_, err = page(second.Meta.Continue)
	var st apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &st) || st.Status().Continue == "" {
		t.Fatalf("after compaction: %v", err)
	}
	rest, err := page(st.Status().Continue)
	if err != nil || len(rest.Items) != 2 || rest.Items[0].Object().GetName() != "c8" || rest.Meta.Continue != "" {
		t.Errorf("the rest: %+v, %v", rest, err)
	}
}

func TestWatchesAreBounded(t *testing.T) {
	r := newRig(t)
	r.Watches = 2
	var open []*server.Stream
	for i := range 3 {
		res, err := r.request("watch", "configmaps", "ns", "", nil)
		if i == 2 {
			if !apierrors.IsTooManyRequests(err) {
				t.Fatalf("a third watch: %v", err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, res.Watch)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	events := &eventWriter{Stream: open[0],
		encoder: &encode.Encoder{Codec: r.State.Codec, Def: open[0].Def, Format: encode.Format{Media: codec.JSON}}}
	events.run(ctx, watchSink{&responsewriter.Writer{ResponseWriter: httptest.NewRecorder()}})
	res, err := r.request("watch", "configmaps", "ns", "", nil)
	if err != nil {
		t.Fatalf("after one has ended: %v", err)
	}
	res.Watch.Watcher.Close()
	open[1].Watcher.Close()
}
