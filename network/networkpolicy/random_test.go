package networkpolicy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// FuzzPlan makes random changes to a cluster of two nodes. After each, the plans and the oracle must agree about random
// connections; at the end the plans must be equal to those made from scratch.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		d := &randomCluster{twoNodes: newTwoNodes(), Rand: rand.New(rand.NewPCG(seed, 1))}
		for range 60 {
			what := d.change()
			for range 20 {
				if f := d.flow(); d.nodes["n1"].passes(f) != d.allowsOnNode(f, "n1") ||
					d.nodes["n2"].passes(f) != d.allowsOnNode(f, "n2") ||
					(d.nodes["n1"].passes(f) && d.nodes["n2"].passes(f)) != d.allows(f) {
					t.Fatalf("seed %d: after %s, %v: n1 decides %v, n2 %v, the oracle %v", seed, what, f, d.nodes["n1"].passes(f),
						d.nodes["n2"].passes(f), d.allows(f))
				}
			}
			for _, r := range d.nodes {
				checkInvariants(t, r.model)
			}
			if d.IntN(3) == 0 {
				d.nodes["n1"].markWritten()
			}
		}
		for name, r := range d.nodes {
			fresh := newResolver(name)
			for _, k := range slices.SortedFunc(maps.Keys(d.policies), compareKeys) {
				fresh.setPolicy(k, readPolicy(d.policies[k]))
			}
			for _, k := range slices.SortedFunc(maps.Keys(d.pods), compareKeys) {
				fresh.setPod(k, d.pods[k])
			}
			for name, set := range d.namespaces {
				fresh.setNamespace(name, set)
			}
			if got, want := formatPlan(r.model), formatPlan(fresh.model); got != want {
				t.Fatalf("seed %d: the plan of %s is\n%s\nbut made from scratch it would be\n%s", seed, name, got, want)
			}
		}
	})
}

// checkInvariants checks the invariants of a plan: everything that is used exists, and the recorded changes are complete.
func checkInvariants(t *testing.T, w *model) {
	t.Helper()
	users := map[string]int{"ingress": 1, "egress": 1, "itself": 1}
	for _, c := range w.chains {
		for _, l := range c.lines {
			for _, name := range []string{l.from, l.to, l.named} {
				if name != "" {
					users[name]++
				}
			}
			users[l.chain]++
		}
	}
	for _, p := range w.pods {
		for _, name := range p.isolationChains {
			users[name]++
		}
	}
	for name, s := range w.sets {
		if s.users != users[name] || users[name] == 0 {
			t.Fatalf("set %s has %d users, and counts %d", name, users[name], s.users)
		}
		delete(users, name)
	}
	for name, c := range w.chains {
		if c.users != users[name] || users[name] == 0 {
			t.Fatalf("chain %s has %d users, and counts %d", name, users[name], c.users)
		}
		delete(users, name)
	}
	delete(users, "")
	if len(users) > 0 {
		t.Fatalf("used, but missing: %v", users)
	}
}

// randomCluster is a cluster of two nodes that is changed at random.
type randomCluster struct {
	*twoNodes
	*rand.Rand
	created int64
}

// allowsOnNode is the oracle for one node: policies are enforced for its own Pods only.
func (d *randomCluster) allowsOnNode(f flow, node string) bool {
	if f.from == f.to {
		return true
	}
	src, dst := d.podAt(f.from), d.podAt(f.to)
	here := func(p *corev1.Pod) *corev1.Pod {
		if p == nil || p.Spec.NodeName != node {
			return nil
		}
		return p
	}
	return d.allowsDirection(here(src), networkingv1.PolicyTypeEgress, f, dst, f.to, dst) &&
		d.allowsDirection(here(dst), networkingv1.PolicyTypeIngress, f, src, f.from, dst)
}

func pick[T any](d *randomCluster, list ...T) T { return list[d.IntN(len(list))] }

func (d *randomCluster) namespace() string { return pick(d, "a", "b", "c") }

func (d *randomCluster) labels() map[string]string {
	out := map[string]string{}
	for _, k := range []string{"app", "tier"} {
		if d.IntN(3) > 0 {
			out[k] = pick(d, "x", "z")
		}
	}
	return out
}

func (d *randomCluster) selector() *metav1.LabelSelector {
	switch d.IntN(5) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		operator := pick(d, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn)
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: operator,
			Values: []string{pick(d, "x", "z"), "q"}}}}
	case 2:
		operator := pick(d, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: pick(d, "app", "tier"), Operator: operator}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{pick(d, "app", "tier"): pick(d, "x", "z")}}
}

// change makes one change to the cluster.
func (d *randomCluster) change() string {
	switch n := d.namespace(); d.IntN(9) {
	case 0:
		d.namespaces[n] = d.labels()
		for _, r := range d.nodes {
			r.setNamespace(n, d.namespaces[n])
		}
		return "labels of namespace " + n
	case 1:
		delete(d.namespaces, n)
		for _, r := range d.nodes {
			r.setNamespace(n, nil)
		}
		return "no namespace " + n
	case 2, 3, 4:
		return d.changePolicy(key{n, pick(d, "p", "q", "r")})
	default:
		return d.changePod(key{n, fmt.Sprint("pod-", d.IntN(4))})
	}
}

func (d *randomCluster) changePolicy(k key) string {
	if d.IntN(4) == 0 {
		delete(d.policies, k)
		for _, r := range d.nodes {
			r.setPolicy(k, nil)
		}
		return "no policy " + k.String()
	}
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = k.namespace, k.name
	p.Spec.PodSelector = *d.selector()
	p.Spec.PolicyTypes = pick(d, nil, []networkingv1.PolicyType{"Ingress"}, []networkingv1.PolicyType{"Egress"},
		[]networkingv1.PolicyType{"Ingress", "Egress"})
	for range d.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: d.peers(), Ports: d.ports()})
	}
	for range d.IntN(3) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: d.peers(), Ports: d.ports()})
	}
	d.policies[k] = p
	for _, r := range d.nodes {
		r.setPolicy(k, readPolicy(p))
	}
	return fmt.Sprintf("policy %s %+v", k, p.Spec)
}

func (d *randomCluster) peers() (out []networkingv1.NetworkPolicyPeer) {
	for range d.IntN(3) {
		var p networkingv1.NetworkPolicyPeer
		switch d.IntN(4) {
		case 0:
			p.PodSelector = d.selector()
		case 1:
			p.NamespaceSelector = d.selector()
		case 2:
			p.PodSelector, p.NamespaceSelector = d.selector(), d.selector()
		default:
			p.IPBlock = pick(d,
				&networkingv1.IPBlock{CIDR: "10.0.0.0/28", Except: []string{"10.0.0.4/30", "10.0.0.9/32"}},
				&networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/29"}},
				&networkingv1.IPBlock{CIDR: "10.0.0.5/32"},
				&networkingv1.IPBlock{CIDR: "fd00::/124", Except: []string{"fd00::8/126"}},
				&networkingv1.IPBlock{CIDR: "::/0"})
		}
		out = append(out, p)
	}
	return out
}

func (d *randomCluster) ports() (out []networkingv1.NetworkPolicyPort) {
	for range d.IntN(3) {
		p := networkingv1.NetworkPolicyPort{Protocol: pick(d, nil, new(corev1.ProtocolTCP), new(corev1.ProtocolUDP),
			new(corev1.ProtocolSCTP))}
		switch d.IntN(4) {
		case 0:
		case 1:
			p.Port = new(intstr.FromString("http"))
		case 2:
			p.Port, p.EndPort = new(intstr.FromInt32(79+d.Int32N(3))), new(int32(82))
		default:
			p.Port = new(intstr.FromInt32(79 + d.Int32N(4)))
		}
		out = append(out, p)
	}
	return out
}

func (d *randomCluster) changePod(k key) string {
	old := d.pods[k]
	if d.IntN(4) == 0 {
		delete(d.pods, k)
		for _, r := range d.nodes {
			r.setPod(k, nil)
		}
		return "no pod " + k.String()
	}
	p := &corev1.Pod{}
	if old != nil && d.IntN(2) == 0 {
		p = old.DeepCopy()
	} else {
		d.created++
		p.Namespace, p.Name = k.namespace, k.name
		p.UID, p.CreationTimestamp = types.UID(fmt.Sprint("u", d.created)), metav1.Unix(d.created, 0)
		p.Spec.NodeName = pick(d, "n1", "n2")
		p.Spec.HostNetwork = d.IntN(8) == 0
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: pick(d, "http", "other"),
			ContainerPort: 79 + d.Int32N(4), Protocol: pick(d, "", corev1.ProtocolTCP, corev1.ProtocolUDP)}}}}
		// An address that no other Pod has.
		for n := range 16 {
			a, six := netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), netip.MustParseAddr(fmt.Sprintf("fd00::%x", n))
			if d.podAt(a) == nil || old != nil && d.podAt(a) == old {
				p.Status.PodIPs = []corev1.PodIP{{IP: a.String()}, {IP: six.String()}}
				if d.IntN(3) == 0 {
					break
				}
			}
		}
	}
	p.Labels = d.labels()
	p.Status.Phase = pick(d, "", corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed)
	// A Pod that runs again after it has ended needs an address that no other Pod has got meanwhile.
	if p.Status.PodIPs != nil {
		if q := d.podAt(netip.MustParseAddr(p.Status.PodIPs[0].IP)); q != nil && q != old {
			p.Status.Phase = corev1.PodFailed
		}
	}
	d.pods[k] = p
	for _, r := range d.nodes {
		r.setPod(k, p)
	}
	return fmt.Sprintf("pod %s %v %v %s on %s", k, p.Labels, p.Status.PodIPs, p.Status.Phase, p.Spec.NodeName)
}

func (d *randomCluster) flow() flow {
	f := flow{protocol: pick(d, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP), port: 78 + d.IntN(6)}
	from, to := d.IntN(18), d.IntN(18)
	f.from, f.to = netip.AddrFrom4([4]byte{10, 0, 0, byte(from)}), netip.AddrFrom4([4]byte{10, 0, 0, byte(to)})
	if d.IntN(3) == 0 {
		f.from, f.to = netip.MustParseAddr(fmt.Sprintf("fd00::%x", from)), netip.MustParseAddr(fmt.Sprintf("fd00::%x", to))
	}
	return f
}
