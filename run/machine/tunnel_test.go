package machine

import (
	"context"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/run/machine/agentjoin"
)

// scriptedView is a view whose objects change with each event, as steps says.
type scriptedView struct {
	client.View // nil: the rest is not used
	steps       [][]kind.Object
	current     []kind.Object
}

// Events yields the last object of each step.
func (c *scriptedView) Events(context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		for _, step := range c.steps {
			c.current = step
			if !yield(client.Event{Object: step[len(step)-1]}) {
				return
			}
		}
	}
}

// List returns the current objects.
func (c *scriptedView) List(string) iter.Seq[kind.Object] { return slices.Values(c.current) }

// Get finds a current object by name.
func (c *scriptedView) Get(_, name string) (kind.Object, bool) {
	i := slices.IndexFunc(c.current, func(o kind.Object) bool { return o.GetName() == name })
	if i < 0 {
		return nil, false
	}
	return c.current[i], true
}

func slice(namespace, service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service,
		Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	s.Ports = []discoveryv1.EndpointPort{{Port: new(int32(6443))}, {}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// TestWatchServers checks that the servers are the endpoints of the Service kubernetes and the configured one, each once.
func TestWatchServers(t *testing.T) {
	other := slice("shop", "kubernetes", "198.51.100.1")
	view := &scriptedView{steps: [][]kind.Object{
		{slice("default", "web", "10.0.0.1")},
		{other},
		{slice("default", "kubernetes", "192.0.2.1")},
		{slice("default", "kubernetes", "192.0.2.1", "192.0.2.2", "2001:db8::3")},
		{slice("default", "web", "10.0.0.1"), slice("default", "kubernetes", "2001:db8::3", "192.0.2.1", "192.0.2.2")},
		{slice("default", "kubernetes", "192.0.2.2")},
	}}
	var got []string
	for list := range watchServers(t.Context(), view, []string{"192.0.2.1:6443"}) {
		got = append(got, strings.Join(list, " "))
	}
	want := []string{
		"192.0.2.1:6443",
		"192.0.2.1:6443 192.0.2.2:6443 [2001:db8::3]:6443",
		"192.0.2.1:6443 192.0.2.2:6443",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for text, want := range map[string]string{"https://192.0.2.1:6443": "192.0.2.1:6443", "https://api.example": "api.example:443",
		"https://[2001:db8::3]": "[2001:db8::3]:443"} {
		if got, err := agentjoin.HostPort(text); got != want || err != nil {
			t.Errorf("%s is at %s, %v; want %s", text, got, err, want)
		}
	}
}

// TestAddressesOfNodeAndPods checks which addresses belong to the node, and which to its Pods.
func TestAddressesOfNodeAndPods(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Spec.PodCIDRs = []string{"10.244.3.0/24", "2001:db8:3::/64"}
	for addressType, address := range map[corev1.NodeAddressType]string{corev1.NodeInternalIP: "192.0.2.7",
		corev1.NodeHostName: "127.0.0.1"} {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: addressType, Address: address})
	}
	nodes := &scriptedView{current: []kind.Object{n}}
	if got := ownAddresses(nodes, "n"); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("192.0.2.7")}) {
		t.Errorf("its own are %v", got)
	}
	if got := ownAddresses(nodes, "m"); got != nil {
		t.Errorf("those of a node that is not known are %v", got)
	}
	p := &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "172.16.0.9"}, {IP: "bad"}}}}
	pods := &scriptedView{current: []kind.Object{p}}
	for text, want := range map[string][2]bool{"10.244.3.9": {true, false}, "10.244.4.9": {}, "2001:db8:3::1": {true, false},
		"172.16.0.9": {false, true}} {
		ip := netip.MustParseAddr(text)
		if got := [2]bool{isPodAddress(nodes, "n", ip), isAddressOfPod(pods, ip)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if isPodAddress(nodes, "m", ip) {
			t.Errorf("%s is that of a Pod of a node that is not known", text)
		}
	}
}
