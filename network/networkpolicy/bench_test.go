package networkpolicy

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/network/nettest"
	"proa.dev/network/nft"
)

// largeCluster returns the objects of a cluster of 10,000 Pods in 100 namespaces with 1,000 policies; 200 of the Pods are on this node.
func largeCluster(tb testing.TB) (pods []*corev1.Pod, policies []*networkingv1.NetworkPolicy) {
	tb.Helper()
	for i := range 10000 {
		p := &corev1.Pod{}
		p.Namespace, p.Name, p.UID = fmt.Sprint("ns-", i%100), fmt.Sprint("pod-", i), types.UID(fmt.Sprint(i))
		p.Labels = map[string]string{"app": fmt.Sprint("app-", i/100%10), "version": fmt.Sprint(i % 3)}
		p.Spec.NodeName = fmt.Sprint("n", 1+i/100%50)
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}
		p.Status.PodIPs = []corev1.PodIP{{IP: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String()}}
		pods = append(pods, p)
	}
	for i := range 1000 {
		n := &networkingv1.NetworkPolicy{}
		n.Namespace, n.Name = fmt.Sprint("ns-", i%100), fmt.Sprint("policy-", i/100)
		spec := fmt.Sprintf(`{podSelector: {matchLabels: {app: app-%d}}, policyTypes: [Ingress, Egress],
ingress: [{from: [{podSelector: {matchLabels: {app: app-%d}}}, {namespaceSelector: {matchLabels: {team: team-%d}}}], ports: [{port: http}, {port: 9090}]}],
egress: [{to: [{ipBlock: {cidr: 192.0.%d.0/24}}, {podSelector: {}}]}, {ports: [{port: 53, protocol: UDP}]}]}`, i/100, (i/100+1)%10, i%20, i%200)
		if err := yaml.UnmarshalStrict([]byte(spec), &n.Spec); err != nil {
			tb.Fatal(err)
		}
		policies = append(policies, n)
	}
	return pods, policies
}

// resolverFor returns a resolver with the plan for the whole cluster.
func resolverFor(pods []*corev1.Pod, policies []*networkingv1.NetworkPolicy) *resolver {
	r := newResolver("n1")
	for i := range 100 {
		r.setNamespace(fmt.Sprint("ns-", i), map[string]string{"team": fmt.Sprint("team-", i%20)})
	}
	for _, p := range pods {
		r.setPod(key{p.Namespace, p.Name}, p)
	}
	for _, n := range policies {
		r.setPolicy(key{n.Namespace, n.Name}, readPolicy(n))
	}
	return r
}

func BenchmarkPlan(b *testing.B) {
	pods, policies := largeCluster(b)
	for b.Loop() {
		resolverFor(pods, policies)
	}
}

// benchmarkChanges benchmarks single changes of a large cluster.
func benchmarkChanges(b *testing.B, r *resolver, pods []*corev1.Pod, policies []*networkingv1.NetworkPolicy, after func()) {
	cases := map[string]func(i int){
		"a remote Pod is created or deleted": func(i int) {
			p := pods[150] // it is on another node
			if i%2 == 0 {
				r.setPod(key{p.Namespace, p.Name}, nil)
			} else {
				r.setPod(key{p.Namespace, p.Name}, p)
			}
		},
		"a local Pod is created or deleted": func(i int) {
			p := pods[50]
			if i%2 == 0 {
				r.setPod(key{p.Namespace, p.Name}, nil)
			} else {
				r.setPod(key{p.Namespace, p.Name}, p)
			}
		},
		"a Pod gets other labels": func(i int) {
			p := pods[50].DeepCopy()
			p.Labels["app"] = fmt.Sprint("app-", i%2)
			r.setPod(key{p.Namespace, p.Name}, p)
		},
		"a policy changes": func(i int) {
			n := policies[50].DeepCopy()
			if i%2 == 0 {
				n.Spec.Ingress = nil
			}
			r.setPolicy(key{n.Namespace, n.Name}, readPolicy(n))
		},
		"a policy is created or deleted": func(i int) {
			n := policies[50]
			if i%2 == 0 {
				r.setPolicy(key{n.Namespace, n.Name}, nil)
			} else {
				r.setPolicy(key{n.Namespace, n.Name}, readPolicy(n))
			}
		},
		"a namespace gets other labels": func(i int) {
			r.setNamespace("ns-7", map[string]string{"team": fmt.Sprint("team-", i%2)})
		},
	}
	for name, change := range cases {
		b.Run(name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				change(i)
				after()
				i++
			}
			if i%2 == 1 {
				change(1)
			}
		})
	}
}

// BenchmarkChange measures a change of the plan alone.
func BenchmarkChange(b *testing.B) {
	pods, policies := largeCluster(b)
	r := resolverFor(pods, policies)
	benchmarkChanges(b, r, pods, policies, func() { r.markWritten(); clear(r.formerOwners) })
}

// BenchmarkCommit measures a change including the kernel.
func BenchmarkCommit(b *testing.B) {
	nettest.Need(b)
	pods, policies := largeCluster(b)
	r := resolverFor(pods, policies)
	kernel, err := nft.Open()
	if err != nil {
		b.Fatal(err)
	}
	tab := &table{name: testTable, kernel: kernel, log: slog.New(slog.DiscardHandler)}
	b.Cleanup(func() { _ = kernel.Remove(testTable); kernel.Close() })
	commit := func() {
		if err := tab.commit(r.model); err != nil {
			b.Fatal(err)
		}
		clear(r.formerOwners)
	}
	commit()
	b.Run("everything", func(b *testing.B) {
		for b.Loop() {
			tab.state = unknown
			commit()
		}
	})
	b.Logf("%d sets, %d chains", len(r.sets), len(r.chains))
	benchmarkChanges(b, r, pods, policies, commit)
}
