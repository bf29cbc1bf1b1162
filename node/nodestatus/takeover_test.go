package nodestatus_test

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node/nodestatus"
	"proa.dev/proatest"
)

// TestLiveNodeIsNotTakenOver checks that a second agent cannot become a node whose agent is alive. When the first has ended it can,
// the first cannot come back while the second is alive, and an agent that was only cut off stops being the node.
func TestLiveNodeIsNotTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), anyAddress())
		as, log := asNode(c, "a"), slog.New(slog.DiscardHandler)
		config := func(data string) nodestatus.Config {
			return nodestatus.Config{Name: "a", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Port: 10250, Version: "v1.37.1",
				Data: data}
		}
		run := func(data string) (stop func() error) {
			n, err := nodestatus.New(as, config(data), nodestatus.Parts{Runtime: &fakeRuntime{ready: true}}, log)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- n.Run(ctx) }()
			return func() error { cancel(); return <-done }
		}
		check := func(data string) error { return nodestatus.CheckFree(t.Context(), as, config(data), log) }
		if err := check("/one"); err != nil {
			t.Errorf("a new node: %v", err)
		}
		stop := run("/one")
		time.Sleep(time.Minute)
		err := check("/two")
		if !nodestatus.IsTaken(err) || !strings.Contains(err.Error(), `Node "a" is alive on another machine`) ||
			!strings.Contains(err.Error(), "--node NAME") {
			t.Errorf("a second agent: %v", err)
		}
		if err := check("/one"); err != nil {
			t.Errorf("the same agent restarts: %v", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		if err := check("/two"); !nodestatus.IsTaken(err) {
			t.Errorf("the Lease has not expired: %v", err)
		}
		time.Sleep(time.Minute)
		if err := check("/two"); err != nil {
			t.Errorf("the first agent has ended: %v", err)
		}
		stop = run("/two")
		time.Sleep(15 * time.Second)
		if err := check("/one"); !nodestatus.IsTaken(err) {
			t.Errorf("the first agent returns: %v", err)
		}
		// Another agent has taken the node over while this one was cut off.
		o, err := c.Client.Get(t.Context(), gr.Leases, corev1.NamespaceNodeLease, "a", "")
		if err != nil {
			t.Fatal(err)
		}
		l := o.(*coordinationv1.Lease).DeepCopy()
		l.Annotations["proa.dev/agent"] = "another"
		l.Spec.RenewTime.Time = time.Now()
		if _, err := c.Client.Update(t.Context(), gr.Leases, l, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if err := stop(); !nodestatus.IsTaken(err) {
			t.Errorf("an agent whose node was taken over continues: %v", err)
		}
		// The clock of the other agent is wrong by an hour: the Lease looks expired, but is renewed.
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 3 {
				time.Sleep(8 * time.Second)
				o, _ := c.Client.Get(t.Context(), gr.Leases, corev1.NamespaceNodeLease, "a", "")
				l := o.(*coordinationv1.Lease).DeepCopy()
				l.Spec.RenewTime.Time = time.Now().Add(-time.Hour)
				if _, err := c.Client.Update(t.Context(), gr.Leases, l, ""); err != nil {
					t.Error(err)
				}
			}
		}()
		time.Sleep(9 * time.Second)
		if err := check("/two"); !nodestatus.IsTaken(err) {
			t.Errorf("the clock of the other agent is wrong: %v", err)
		}
		<-done
	})
}

// TestTakenOverByAnAgentWithAWrongClock checks that an agent that was cut off stops being the node, even if the clock of the agent
// that has taken over is wrong by an hour. Otherwise the two would take over the node from each other for ever.
func TestTakenOverByAnAgentWithAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), anyAddress())
		config := nodestatus.Config{Name: "a", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Port: 10250, Version: "v1.37.1",
			Data: "/one"}
		n, err := nodestatus.New(asNode(c, "a"), config, nodestatus.Parts{Runtime: &fakeRuntime{ready: true}},
			slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { done <- n.Run(ctx) }()
		time.Sleep(15 * time.Second)
		o, err := c.Client.Get(t.Context(), gr.Leases, corev1.NamespaceNodeLease, "a", "")
		if err != nil {
			t.Fatal(err)
		}
		l := o.(*coordinationv1.Lease).DeepCopy()
		l.Annotations["proa.dev/agent"] = "another"
		l.Spec.RenewTime.Time = time.Now().Add(-time.Hour)
		if _, err := c.Client.Update(t.Context(), gr.Leases, l, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		stop()
		if err := <-done; !nodestatus.IsTaken(err) {
			t.Errorf("the agent continues: %v", err)
		}
	})
}
