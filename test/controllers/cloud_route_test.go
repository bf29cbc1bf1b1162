package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/cloud"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestCloudRoutes creates, changes and deletes nodes: the cloud's routes follow, and routes outside the cluster's networks stay.
func TestCloudRoutes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func([]control.Controller) []control.Controller { return nil }
		})
		s := &fakeCloud{routes: map[string]cloud.Route{}}
		for _, r := range []cloud.Route{
			{Name: "office", Node: "vpn", Destination: netip.MustParsePrefix("192.168.0.0/16")},
			{Name: "left-over", Node: "long-gone", Destination: netip.MustParsePrefix("10.244.9.0/24")},
			{Name: "hole", Node: "a", Destination: netip.MustParsePrefix("10.244.8.0/24"), Blackhole: true},
			{Name: "nobody", Destination: netip.MustParsePrefix("10.244.7.0/24")},
		} {
			s.routes[r.Name] = r
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, c := range cloud.Controllers(cloud.Provider{Name: "sky", Routes: s}, parsePrefixes("10.244.0.0/16", "fd00::/48")) {
			wg.Go(func() {
				if err := control.Run(ctx, slog.New(slog.DiscardHandler), cluster.Client, c, nil); err != nil {
					t.Error(err)
				}
			})
		}
		node := func(name, ip string, cidrs ...string) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs}}
			if _, err := cluster.Client.Create(ctx, gr.Nodes, n); err != nil {
				t.Fatal(err)
			}
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
			if _, err := cluster.Client.Update(ctx, gr.Nodes, n, "status"); err != nil {
				t.Fatal(err)
			}
		}
		check := func(what, want string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			list, _ := s.List(ctx)
			var got []string
			for _, r := range list {
				text := r.Name
				for _, a := range r.Addresses {
					text += "@" + a.Address
				}
				got = append(got, text)
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s: the routes are\n%s\nwant\n%s", what, text, want)
			}
		}
		node("a", "10.0.0.1", "10.244.1.0/24", "fd00:0:0:1::/64")
		node("b", "10.0.0.2", "10.244.2.0/24")
		check("two nodes", "a-10.244.1.0/24@10.0.0.1 a-fd00:0:0:1::/64@10.0.0.1 b-10.244.2.0/24@10.0.0.2 nobody office")
		o, err := cluster.Client.Get(ctx, gr.Nodes, "", "a", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(networkCondition(o.(*corev1.Node))); got != "False RouteCreated RouteController created a route" {
			t.Errorf("the node says: %s", got)
		}
		moved := o.(*corev1.Node)
		moved.Status.Addresses[0].Address = "10.0.0.9"
		if _, err := cluster.Client.Update(ctx, gr.Nodes, moved, "status"); err != nil {
			t.Fatal(err)
		}
		check("one has moved", "a-10.244.1.0/24@10.0.0.9 a-fd00:0:0:1::/64@10.0.0.9 b-10.244.2.0/24@10.0.0.2 nobody office")
		_ = s.Delete(ctx, cloud.Route{Name: "b-10.244.2.0/24"})
		time.Sleep(2 * time.Minute)
		check("a route is deleted in the cloud", "a-10.244.1.0/24@10.0.0.9 a-fd00:0:0:1::/64@10.0.0.9 b-10.244.2.0/24@10.0.0.2 nobody office")
		if err := cluster.Client.Delete(ctx, gr.Nodes, "", "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check("a node is deleted", "b-10.244.2.0/24@10.0.0.2 nobody office")
		// Networks outside the cluster's networks get no route, and the condition of the node says so.
		node("c", "10.0.0.66", "203.0.113.5/32")
		node("d", "10.0.0.67", "128.0.0.0/2")
		check("networks of others", "b-10.244.2.0/24@10.0.0.2 nobody office")
		if o, err = cluster.Client.Get(ctx, gr.Nodes, "", "c", ""); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(networkCondition(o.(*corev1.Node))); got != "True NoRouteCreated RouteController failed to create a route" {
			t.Errorf("the node says: %s", got)
		}
		stop()
		wg.Wait()
		cluster.Stop()
	})
}

func networkCondition(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable {
			return string(c.Status) + " " + c.Reason + " " + c.Message
		}
	}
	return ""
}
