package noderoutes

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/core/nodekind"
	"proa.dev/network/nettest"
)

// TestProbedNodes has simulated nodes, one that is not ready, and many that do not answer: only
// nodes with a Pod network are probed, and the published list is bounded and stable.
func TestProbedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nettest.NewView()
		put := func(i int, name string, change func(*corev1.Node)) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{nodekind.OnLinkAnnotation: ""}}}
			n.Spec.PodCIDR = fmt.Sprintf("10.244.%d.0/24", i)
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
				Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String()}}
			change(n)
			nodes.Put(n)
		}
		unchanged := func(*corev1.Node) {}
		put(1, "self", unchanged)
		put(2, "simulated", func(n *corev1.Node) { n.Annotations = nil })
		put(3, "down", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable}} })
		for i := range 100 {
			put(10+i, fmt.Sprintf("n%03d", i), unchanged)
		}
		var mu sync.Mutex // guards what follows
		var dialed, published []string
		m := &Mesh{Config: Config{
			NodeName: "self", Nodes: nodes, Log: slog.New(slog.DiscardHandler),
			Dial: func(_ context.Context, _ *net.Dialer, addr string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				dialed = append(dialed, addr)
				return nil, context.DeadlineExceeded
			},
			Publish: func(_ context.Context, _, value string) error {
				mu.Lock()
				defer mu.Unlock()
				published = append(published, value)
				return nil
			},
		}}
		ctx, stop := context.WithCancel(t.Context())
		go m.probePeers(ctx)
		time.Sleep(20 * time.Minute)
		stop()
		synctest.Wait()
		if slices.Contains(dialed, "10.244.2.1:10250") || slices.Contains(dialed, "10.244.3.1:10250") {
			t.Error("a simulated node, or one that is not ready, was probed")
		}
		last := strings.Split(published[len(published)-1], ",")
		if len(last) != maxUnreachable || last[0] != "n000" || len(published) > 5 {
			t.Errorf("published %d times, at last %v", len(published), last)
		}
	})
}
