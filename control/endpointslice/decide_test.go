package endpointslice

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/internal/textcase"
)

// TestDecide runs the scripts in testdata/decide: each line is a command, and the indented lines below it are its output.
//
//	service [ports=NAME:PORT:TARGET,...] [families=IPv4,...] [ip=CLUSTERIP] [near=DISTRIBUTION] [headless] [unready]
//	        [deleting] [uid=U] [label=K=V] [annotation=K=V]
//	node NAME [zone=Z] [cpu=N] [down] [plane]     forget node NAME
//	pod NAME [ip=A,...] [node=N] [ready=SECONDS] [deleting] [ended] [host=H] [since=SECONDS] [port=NAME:NUMBER]    forget pod NAME
//	pods N              that many ready pods at once
//	decide              shows the plan, and carries it out
//	slices              shows the slices
func TestDecide(t *testing.T) {
	textcase.Stories(t, "testdata/decide/*.txt", func(t *testing.T) func([]string) string {
		w := newWorld()
		return func(words []string) string { return w.do(t, words) }
	})
}

type world struct {
	service *corev1.Service
	nodes   map[string]*corev1.Node
	pods    []*corev1.Pod
	slices  []*discoveryv1.EndpointSlice
	names   int
}

func newWorld() *world { return &world{nodes: map[string]*corev1.Node{}} }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) do(t *testing.T, f []string) string {
	switch f[0] {
	case "service":
		w.service = serviceOf(t, f[1:])
	case "node":
		w.nodes[f[1]] = nodeOf(t, f[1:])
	case "forget":
		delete(w.nodes, f[2])
		w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return f[1] == "pod" && p.Name == f[2] })
	case "pod":
		p := podOf(t, f[1:])
		if i := slices.IndexFunc(w.pods, func(o *corev1.Pod) bool { return o.Name == p.Name }); i >= 0 {
			w.pods[i] = p
		} else {
			w.pods = append(w.pods, p)
		}
	case "pods":
		n, _ := strconv.Atoi(f[1])
		for range n {
			at := len(w.pods)
			w.pods = append(w.pods, podOf(t,
				[]string{fmt.Sprintf("p%04d", at), fmt.Sprintf("ip=10.1.%d.%d", at/250, at%250), "node=n", "ready=1"}))
		}
	case "decide":
		return w.decide()
	case "slices":
		return w.show()
	default:
		t.Fatalf("no command %q", f[0])
	}
	return ""
}

func (w *world) decide() string {
	p := decide(state{
		service: w.service, pods: w.pods, slices: slices.Clone(w.slices),
		nodeNamed: func(name string) *corev1.Node { return w.nodes[name] },
		allNodes: func() (out []*corev1.Node) {
			for _, n := range w.nodes {
				out = append(out, n)
			}
			return out
		},
	})
	var out strings.Builder
	for _, s := range p.create {
		w.names++
		s.Name = fmt.Sprint(s.GenerateName, w.names)
		w.slices = append(w.slices, s)
		fmt.Fprintf(&out, "create %s\n", describe(s))
	}
	for _, s := range p.update {
		w.slices[w.at(s)] = s
		fmt.Fprintf(&out, "update %s\n", describe(s))
	}
	for _, s := range p.remove {
		w.slices = slices.Delete(w.slices, w.at(s), w.at(s)+1)
		fmt.Fprintf(&out, "remove %s\n", s.Name)
	}
	for _, e := range p.events {
		fmt.Fprintf(&out, "%s %s: %s\n", e.kind, e.reason, e.message)
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

func (w *world) at(s *discoveryv1.EndpointSlice) int {
	return slices.IndexFunc(w.slices, func(o *discoveryv1.EndpointSlice) bool { return o.Name == s.Name })
}

func (w *world) show() string {
	var out strings.Builder
	for _, s := range w.slices {
		fmt.Fprintf(&out, "%s\n", describe(s))
		for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
			if k != discoveryv1.LabelServiceName || s.Labels[k] != "web" {
				fmt.Fprintf(&out, "  label %s=%s\n", k, s.Labels[k])
			}
		}
		for i := range s.Endpoints {
			fmt.Fprintf(&out, "  %s\n", line(&s.Endpoints[i]))
		}
	}
	return out.String()
}

func describe(s *discoveryv1.EndpointSlice) string {
	out := fmt.Sprintf("%s %s", s.Name, s.AddressType)
	for _, p := range s.Ports {
		out += fmt.Sprintf(" %s:%d/%s", *p.Name, *p.Port, *p.Protocol)
	}
	out += fmt.Sprintf(" (%d)", len(s.Endpoints))
	if at := s.Annotations[corev1.EndpointsLastChangeTriggerTime]; at != "" {
		when, _ := time.Parse(time.RFC3339Nano, at)
		out += fmt.Sprintf(" since %s", when.Sub(start))
	}
	return out
}

func line(e *discoveryv1.Endpoint) string {
	out := strings.Join(e.Addresses, ",") + " " + e.TargetRef.Name
	if e.NodeName != nil {
		out += " on " + *e.NodeName
	}
	if e.Zone != nil {
		out += " in " + *e.Zone
	}
	if e.Hostname != nil {
		out += " as " + *e.Hostname
	}
	out += fmt.Sprintf(" ready=%s serving=%s terminating=%s", is(e.Conditions.Ready), is(e.Conditions.Serving),
		is(e.Conditions.Terminating))
	if h := e.Hints; h != nil {
		for _, z := range h.ForZones {
			out += " for zone " + z.Name
		}
		for _, n := range h.ForNodes {
			out += " for node " + n.Name
		}
	}
	return out
}

func is(b *bool) string { return fmt.Sprint(*b) }

func serviceOf(t *testing.T, f []string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "s1", CreationTimestamp: metav1.NewTime(start)}}
	s.Spec.ClusterIP, s.Spec.IPFamilies = "10.96.0.1", []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.Selector = map[string]string{"app": "web"}
	for key, value := range textcase.Options(f) {
		switch key {
		case "ports":
			for p := range strings.SplitSeq(value, ",") {
				part := strings.Split(p, ":")
				n, _ := strconv.Atoi(part[1])
				s.Spec.Ports = append(s.Spec.Ports,
					corev1.ServicePort{Name: part[0], Port: int32(n), TargetPort: intstr.Parse(part[2]), Protocol: corev1.ProtocolTCP})
			}
		case "families":
			s.Spec.IPFamilies = nil
			for f := range strings.SplitSeq(value, ",") {
				if f != "" {
					s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(f))
				}
			}
		case "near":
			s.Spec.TrafficDistribution = &value
		case "headless":
			s.Spec.ClusterIP = corev1.ClusterIPNone
		case "ip":
			s.Spec.ClusterIP = value
		case "unready":
			s.Spec.PublishNotReadyAddresses = true
		case "deleting":
			s.DeletionTimestamp = new(metav1.NewTime(start))
		case "uid":
			s.UID = types.UID(value)
			s.CreationTimestamp = metav1.NewTime(start.Add(time.Hour))
		case "label":
			k, v, _ := strings.Cut(value, "=")
			s.Labels = map[string]string{k: v}
		case "annotation":
			k, v, _ := strings.Cut(value, "=")
			s.Annotations = map[string]string{k: v}
		default:
			t.Fatalf("service %q", key)
		}
	}
	return s
}

func nodeOf(t *testing.T, f []string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f[0], Labels: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for key, value := range textcase.Options(f[1:]) {
		switch key {
		case "zone":
			n.Labels[corev1.LabelTopologyZone] = value
		case "cpu":
			n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(value)}
		case "down":
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		case "plane":
			n.Labels["node-role.kubernetes.io/control-plane"] = ""
		default:
			t.Fatalf("node %q", key)
		}
	}
	return n
}

func podOf(t *testing.T, f []string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: f[0], UID: types.UID(f[0]),
		Labels: map[string]string{"app": "web"}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(start)}}
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	for key, value := range textcase.Options(f[1:]) {
		switch key {
		case "ip":
			for ip := range strings.SplitSeq(value, ",") {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
			}
		case "node":
			p.Spec.NodeName = value
		case "ready", "since":
			n, _ := strconv.Atoi(value)
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(time.Duration(n) * time.Second))
			if key == "ready" {
				p.Status.Conditions[0].Status = corev1.ConditionTrue
			}
		case "deleting":
			p.DeletionTimestamp = new(metav1.NewTime(start))
		case "ended":
			p.Status.Phase = corev1.PodSucceeded
		case "host":
			p.Spec.Hostname, p.Spec.Subdomain = value, "web"
		case "port":
			name, number, _ := strings.Cut(value, ":")
			n, _ := strconv.Atoi(number)
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports,
				corev1.ContainerPort{Name: name, ContainerPort: int32(n), Protocol: corev1.ProtocolTCP})
		default:
			t.Fatalf("pod %q", key)
		}
	}
	return p
}
