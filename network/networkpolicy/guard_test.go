package networkpolicy

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/nettest"
)

func TestConfig(t *testing.T) {
	for _, c := range []Config{{}, {NodeName: "n1"}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestAttachFailsWithoutPolicies attaches a Pod while the policies are unknown: it waits, and then gets an error.
func TestAttachFailsWithoutPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{NodeName: "n1",
			Open: func(context.Context, schema.GroupResource) (client.View, error) {
				return nil, errors.New("no connection")
			}})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no connection") {
			t.Errorf("without a view Run returns %v", err)
		}
		start := time.Now()
		err = g.Attach(t.Context(), "default/web", "u", []netip.Addr{netip.MustParseAddr("10.0.0.1")})
		if err == nil || !strings.Contains(err.Error(), "default/web") {
			t.Errorf("a Pod was connected without rules: %v", err)
		}
		if waited := time.Since(start); waited != attachTimeout {
			t.Errorf("it waited %v, not %v", waited, attachTimeout)
		}
	})
}

// TestForbiddenIsReported checks that a node without permission to read policies reports so at once, and that a Pod gets
// the error without a wait, since only an administrator can help.
func TestForbiddenIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		refused := apierrors.NewForbidden(gr.NetworkPolicies, "", errors.New("system:node:n1 may not list it"))
		g, err := New(Config{
			NodeName: "n1", Open: func(context.Context, schema.GroupResource) (client.View, error) { return nil, refused },
			Report: func(err error) { reported = append(reported, err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := g.Run(t.Context()); !errors.Is(err, refused) {
				t.Errorf("Run returns %v", err)
			}
		}
		if len(reported) != 1 || !errors.Is(reported[0], refused) {
			t.Errorf("reported: %v", reported)
		}
		start := time.Now()
		err = g.Attach(t.Context(), "default/web", "u", []netip.Addr{netip.MustParseAddr("10.0.0.1")})
		if err == nil || !strings.Contains(err.Error(), "default/web") || !strings.Contains(err.Error(), "system:node:n1 may not list it") {
			t.Errorf("Attach returns %v", err)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("it waited %v", waited)
		}
	})
}

// TestMayChangePlan checks which events of Pods change the plan.
func TestMayChangePlan(t *testing.T) {
	old := podObject("default/web", "app=web")
	change := func(do func(*corev1.Pod)) client.Event {
		p := old.DeepCopy()
		do(p)
		return client.Event{Object: p, Old: old}
	}
	for what, c := range map[string]struct {
		event client.Event
		want  bool
	}{
		"a new Pod":     {client.Event{Object: old}, true},
		"a deleted Pod": {client.Event{Object: old, Old: old, Deleted: true}, true},
		"a namespace":   {client.Event{Object: &corev1.Namespace{}, Old: &corev1.Namespace{}}, true},
		"no change":     {change(func(*corev1.Pod) {}), false},
		"it is running": {change(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), false},
		"it is ready": {change(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}), false},
		"it is being deleted": {change(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), false},
		"it has ended":        {change(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), true},
		"an address":          {change(func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}} }), true},
		"other labels":        {change(func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }), true},
		"another Pod":         {change(func(p *corev1.Pod) { p.UID = "other" }), true},
		"it is scheduled":     {change(func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), true},
	} {
		if got := mayChangePlan(c.event); got != c.want {
			t.Errorf("%s: got %v", what, got)
		}
	}
}

// TestPodsAreWatchedOnlyWithPolicies checks that nodes do not watch Pods in a cluster without policies.
func TestPodsAreWatchedOnlyWithPolicies(t *testing.T) {
	nettest.Need(t)
	var mu sync.Mutex
	var opened []string
	views := map[schema.GroupResource]*nettest.View{gr.Pods: nettest.NewView(), gr.Namespaces: nettest.NewView(),
		gr.NetworkPolicies: nettest.NewView()}
	g, err := New(Config{NodeName: "n1", Table: testTable, Open: func(_ context.Context, on schema.GroupResource) (client.View, error) {
		mu.Lock()
		defer mu.Unlock()
		opened = append(opened, on.Resource)
		return views[on], nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	runGuard(t, g)
	list := func() string {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(opened)
		return strings.Join(opened, " ")
	}
	if err := g.Attach(t.Context(), "default/web", "u", []netip.Addr{netip.MustParseAddr("10.0.0.1")}); err != nil {
		t.Fatal(err)
	}
	nettest.Same(t, "without policies", list(), "networkpolicies")
	for _, o := range nettest.Objects(t, "kind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n") {
		views[gr.NetworkPolicies].Put(o)
	}
	if err := g.Attach(t.Context(), "default/db", "u", []netip.Addr{netip.MustParseAddr("10.0.0.2")}); err != nil {
		t.Fatal(err)
	}
	nettest.Same(t, "with one", list(), "namespaces networkpolicies pods")
	g.mu.Lock()
	defer g.mu.Unlock()
	nettest.Same(t, "a Pod without an object", g.facts.isolationMaps[ingress].elements[element{addr: netip.MustParseAddr("10.0.0.2")}],
		denyChain)
}

// runGuard runs a guard until the test ends, and removes its rules then.
func runGuard(t *testing.T, g *Guard) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := Purge(testTable); err != nil {
			t.Error(err)
		}
	})
}
