package computed

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/kind"
	"proa.dev/server/collection"
	"proa.dev/watch"
)

// fake is a kind whose objects a test says, and the server for it.
type fake struct {
	kind.Server
	user      user.Info
	objects   map[string]string // the contents by name
	version   uint64
	reads     int
	total     *atomic.Int64 // reads of several
	names     []string      // of the reads
	takes     time.Duration
	err, auth error
}

func (f *fake) User() user.Info { return f.user }

func (f *fake) query() *Query {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	d := kind.Define(kind.Resource[corev1.ConfigMap]{
		Traits:          kind.Traits{GroupVersionKind: gvk, Plural: "configmaps", Verbs: []string{"get", "list", "watch"}},
		ComputedVersion: func() uint64 { return f.version },
		Computed: func(ctx context.Context, _ kind.Server, which kind.Selection) (out []*corev1.ConfigMap, err error) {
			f.reads++
			if f.total != nil {
				f.total.Add(1)
			}
			f.names = append(f.names, which.Name)
			select {
			case <-time.After(f.takes):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			for name, text := range f.objects {
				if which.Name == "" || which.Name == name {
					o := &corev1.ConfigMap{}
					o.Namespace, o.Name, o.ResourceVersion = "default", name, text
					out = append(out, o)
				}
			}
			if len(out) == 0 && which.Name != "" {
				return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, which.Name)
			}
			return out, f.err
		},
	})
	return &Query{Def: d, Server: f, Namespace: "default", Authorize: func(context.Context) error { return f.auth }}
}

func newFake() *fake {
	return &fake{user: &user.DefaultInfo{Name: "eve"}, objects: map[string]string{"a": "1", "b": "1"}}
}

// next returns the events that come within a time, as text; an error ends it.
func next(t *testing.T, w *Watcher, within time.Duration) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), within)
	defer stop()
	items, err := w.Next(ctx, nil, nil)
	if err != nil && ctx.Err() != nil {
		return "nothing"
	}
	if err != nil {
		return "error: " + err.Error()
	}
	var out []string
	for _, it := range items {
		o := it.Event.Object(it.As)
		if o.GetResourceVersion() != strconv.FormatInt(w.rev, 10) || it.Event.Rev != 0 {
			t.Errorf("%s has the version %s and the revision %d", o.GetName(), o.GetResourceVersion(), it.Event.Rev)
		}
		out = append(out, it.As.String()+" "+o.GetName())
	}
	return strings.Join(out, ", ")
}

// TestWatch checks what a watch sends: the present objects, then what changes, and when it starts at a version, what has changed since.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFake(), &Reader{}
		w, present, rev, err := c.Watch(t.Context(), f.query(), &collection.Options{})
		if err != nil || len(present) != 2 || present[0].Object().GetResourceVersion() != strconv.FormatInt(rev, 10) {
			t.Fatalf("%v, %v", present, err)
		}
		if got := next(t, w, time.Minute); got != "nothing" {
			t.Errorf("without a change: %s", got)
		}
		f.objects["b"], f.objects["c"] = "2", "1"
		delete(f.objects, "a")
		if got := next(t, w, time.Minute); len(got) != len("ADDED c, MODIFIED b, DELETED a") || !strings.Contains(got, "MODIFIED b") ||
			!strings.Contains(got, "ADDED c") || !strings.HasSuffix(got, "DELETED a") {
			t.Errorf("after changes: %s", got)
		}
		w.Close()

		items, version, err := c.Read(t.Context(), f.query())
		if err != nil || len(items) != 2 || items[1].Object().GetResourceVersion() != version {
			t.Fatalf("the list is %v at %s: %v", items, version, err)
		}
		f.objects["d"] = "1"
		w, present, _, err = c.Watch(t.Context(), f.query(), &collection.Options{ResourceVersion: version})
		if err != nil || present != nil {
			t.Fatalf("%v, %v", present, err)
		}
		if _, caught := w.DeliveredUpTo(); caught {
			t.Error("a bookmark overtakes an event")
		}
		if got := next(t, w, time.Minute); got != "ADDED d" {
			t.Errorf("from the version of the list: %s", got)
		}
		mark, caught := w.DeliveredUpTo()
		w.Close()
		delete(f.objects, "d")
		w, _, _, err = c.Watch(t.Context(), f.query(), &collection.Options{ResourceVersion: strconv.FormatInt(mark, 10)})
		if err != nil || !caught {
			t.Fatal(err, caught)
		}
		if got := next(t, w, time.Minute); got != "DELETED d" {
			t.Errorf("from the version of a bookmark: %s", got)
		}
		w.Close()
	})
}

// TestWatchOfOne checks that a watch of one name computes that alone, and waits for an object that does not exist.
func TestWatchOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFake(), &Reader{}
		one := &collection.Options{Fields: fields.OneTermEqualSelector("metadata.name", "c"), Initial: ptr.To(true)}
		w, present, _, err := c.Watch(t.Context(), f.query(), one)
		if err != nil || len(present) != 0 {
			t.Fatal(present, err)
		}
		f.objects["c"] = "1"
		if got := next(t, w, time.Minute); got != "ADDED c" || f.names[len(f.names)-1] != "c" {
			t.Errorf("%s of the reads %q", got, f.names)
		}
		w.Close()
	})
}

// TestVersionsBelongToUsers checks that a version is of use to the user alone who has got it: another one would learn the names of what is
// gone. One that is not known is expired, and what is no number is refused.
func TestVersionsBelongToUsers(t *testing.T) {
	f, c := newFake(), &Reader{}
	_, version, err := c.Read(t.Context(), f.query())
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []user.Info{&user.DefaultInfo{Name: "mallory"}, &user.DefaultInfo{Name: "eve", Groups: []string{"few"}}} {
		m := &fake{user: other, objects: map[string]string{}}
		_, _, _, err := c.Watch(t.Context(), m.query(), &collection.Options{ResourceVersion: version})
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("%v watches from the version of another: %v", other, err)
		}
	}
	if _, _, _, err := c.Watch(t.Context(), f.query(), &collection.Options{ResourceVersion: "9"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a version that nobody knows: %v", err)
	}
	if _, _, _, err := c.Watch(t.Context(), f.query(), &collection.Options{ResourceVersion: "x"}); err == nil {
		t.Error("x is a version")
	}
	for i := range 3 * maxUsers {
		u := identity{client: fmt.Sprint("user ", i)}
		for range 3 * maxPoints {
			c.remember(u, nil)
		}
	}
	if len(c.points) > maxUsers || len(c.lastUser) > maxUsers || len(c.points[c.lastUser[0]]) > maxPoints {
		t.Errorf("it remembers %d users, the first with %d versions", len(c.points), len(c.points[c.lastUser[0]]))
	}
}

// TestGetRemembersNothing checks that a get, unlike a list, leaves nothing in memory from which a watch could go on.
func TestGetRemembersNothing(t *testing.T) {
	f, c := newFake(), &Reader{}
	q := f.query()
	q.Name = "a"
	o, found, err := q.Get(t.Context())
	if err != nil || !found || o.GetName() != "a" || o.GetResourceVersion() != "" ||
		o.GetObjectKind().GroupVersionKind().Kind != "ConfigMap" {
		t.Errorf("%v, %v, %v", o, found, err)
	}
	if len(c.points) != 0 {
		t.Errorf("%d users are remembered", len(c.points))
	}
	q.Name = "none"
	if _, found, err := q.Get(t.Context()); found || !apierrors.IsNotFound(err) {
		t.Errorf("an object that does not exist: %v, %v", found, err)
	}
	q.Name, f.err = "a", apierrors.NewTooManyRequests("busy", 1)
	if _, _, err := q.Get(t.Context()); !apierrors.IsTooManyRequests(err) {
		t.Errorf("an object that cannot be computed: %v", err)
	}
}

// TestOneClientLeavesVersionsOfOthers checks that whoever lists with very many tokens does not make others list again.
func TestOneClientLeavesVersionsOfOthers(t *testing.T) {
	f, c := newFake(), &Reader{}
	_, version, err := c.Read(t.Context(), f.query())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 * maxUsers {
		m := newFake()
		m.user = &user.DefaultInfo{Name: fmt.Sprint("system:serviceaccount:m:", i%20), Extra: map[string][]string{"token": {fmt.Sprint(i)}}}
		if _, _, err := c.Read(t.Context(), m.query()); err != nil {
			t.Fatal(err)
		}
	}
	w, _, _, err := c.Watch(t.Context(), f.query(), &collection.Options{ResourceVersion: version})
	if err != nil || len(c.points) != 1+maxUsersOfClient {
		t.Fatalf("%d users are remembered, and a watch goes on: %v", len(c.points), err)
	}
	w.Close()
}

// TestWatchesAreBounded checks how many watches there are, how often they compute, and for how much of the time.
func TestWatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Reader{}
		open := func(name string) (*Watcher, error) {
			f := newFake()
			f.user = &user.DefaultInfo{Name: name}
			w, _, _, err := c.Watch(t.Context(), f.query(), &collection.Options{})
			return w, err
		}
		var all []*Watcher
		takeAll := func(name string) (taken int, err error) { // as many as the user gets
			for {
				w, err := open(name)
				if err != nil {
					return taken, err
				}
				all = append(all, w)
				taken++
			}
		}
		if n, err := takeAll("user 0"); n != maxWatchesOfClient || !apierrors.IsTooManyRequests(err) ||
			!strings.Contains(err.Error(), `"user 0" has 8 watches`) ||
			!strings.Contains(err.Error(), "may have 8 while 8 of 64 are taken") {
			t.Errorf("one user has %d: %v", n, err)
		}
		users := 1
		for n := 1; n > 0; users++ {
			var err error
			if n, err = takeAll(fmt.Sprintf("system:serviceaccount:ns-%d:a", users)); !apierrors.IsTooManyRequests(err) {
				t.Fatal(err)
			}
			if m, _ := takeAll(fmt.Sprintf("system:serviceaccount:ns-%d:b", users)); m != 0 {
				t.Fatal("two service accounts of one namespace have more watches than one")
			}
		}
		if users < 20 || len(all) != maxWatches {
			t.Errorf("%d users have taken %d watches", users-1, len(all))
		}
		if _, err := open("another"); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "all 64 watches") {
			t.Errorf("there is one more: %v", err)
		}
		for _, w := range all {
			w.Close()
			w.Close()
		}
		if c.total != 0 || len(c.watches) != 0 {
			t.Errorf("%d watches are left", c.total)
		}

		f := newFake()
		w, _, _, err := c.Watch(t.Context(), f.query(), &collection.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.reads = 0
		next(t, w, 10*time.Second)
		if f.reads > 20 || f.reads < 15 {
			t.Errorf("it has computed %d times in 10 seconds", f.reads)
		}
		f.version, f.reads = 7, 0 // nothing changes
		next(t, w, 30*time.Second)
		if f.reads > 4 || f.reads < 3 {
			t.Errorf("it has computed %d times in 30 seconds without a change", f.reads)
		}
		w.Close()

		const takes = 200 * time.Millisecond
		var reads atomic.Int64
		for i := range 8 {
			slow := newFake()
			slow.takes, slow.total, slow.user = takes, &reads, &user.DefaultInfo{Name: fmt.Sprint(i)}
			w, _, _, err := c.Watch(t.Context(), slow.query(), &collection.Options{})
			if err != nil {
				t.Fatal(err)
			}
			go next(t, w, time.Hour)
		}
		reads.Store(0)
		time.Sleep(time.Minute)
		if busy := time.Duration(reads.Load()) * takes; busy > 16*time.Second || busy < 10*time.Second {
			t.Errorf("eight watches were computing for %v of a minute", busy)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
	})
}

// TestWatchEndsWithItsRights checks that a watch ends with an error when its user may not watch any more, also when nothing changes, and
// goes on when the objects cannot be computed for a moment.
func TestWatchEndsWithItsRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFake(), &Reader{}
		f.version = 7
		w, _, _, err := c.Watch(t.Context(), f.query(), &collection.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		f.err, f.version = apierrors.NewTooManyRequests("busy", 1), 8
		if got := next(t, w, time.Minute); got != "nothing" {
			t.Errorf("while it cannot be computed: %s", got)
		}
		f.err, f.objects["c"] = nil, "1"
		if got := next(t, w, time.Minute); got != "ADDED c" {
			t.Errorf("after that: %s", got)
		}
		f.auth = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
		if got := next(t, w, time.Second); !strings.Contains(got, "forbidden") {
			t.Errorf("without the right: %s", got)
		}
		var idle = make(chan time.Time, 1)
		idle <- time.Now()
		f.auth = nil
		if items, err := w.Next(t.Context(), idle, []watch.Item{{}}); len(items) != 0 || err != nil {
			t.Errorf("%v, %v", items, err)
		}
	})
}

// TestSlowWatchDoesNotStopOthers checks that objects which take forever to compute for one user, such as by an authorizer that does not
// answer, do not keep those of others from being computed.
func TestSlowWatchDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, slow, f := &Reader{}, newFake(), newFake()
		slow.user = &user.DefaultInfo{Name: "mallory"}
		bad, _, _, err := c.Watch(t.Context(), slow.query(), &collection.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, _, _, err := c.Watch(t.Context(), f.query(), &collection.Options{})
		if err != nil {
			t.Fatal(err)
		}
		slow.takes = 24 * time.Hour
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := bad.Next(ctx, nil, nil)
			ended <- err
		}()
		time.Sleep(time.Second)
		f.objects["c"] = "1"
		if got := next(t, w, time.Minute); got != "ADDED c" {
			t.Errorf("the other watch gets %s", got)
		}
		stop()
		if err := <-ended; ctx.Err() == nil || err == nil {
			t.Error(err)
		}
		bad.Close()
		w.Close()
	})
}
