package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/servicetable"
)

// TestDecide runs the scripts in testdata/decide: each line is a command, and the indented lines below it are its output.
//
//	service {SPEC}       the Service, whose status is kept
//	labels KEY=VALUE...  its labels
//	status {STATUS}      its status
//	given PROVIDER       the annotation that says which provider has assigned the addresses in its status
//	slice NAME [PORTNAME:]PORT/PROTOCOL ENDPOINT...    a slice; an endpoint is its address, followed by commas and words:
//	                     the name of its node, unready, terminating, gone (terminating and not serving), zone=Z, for=NODE
//	forget NAME          a slice is deleted
//	node [zone=Z] [address=A] [others=A] [externalIPs=CIDR] [balancers=CIDR] [kept=PORT]    the state of the node, which is
//	                     called here; the addresses of other nodes, allowed ranges, and reserved ports
//	decide               shows the rules that the Service needs
func TestDecide(t *testing.T) {
	textcase.Stories(t, "testdata/decide/*.txt", func(t *testing.T) func([]string) string {
		t.Helper()
		s := &decideScript{node: nodeFacts{name: "here"}, slices: map[string]*discoveryv1.EndpointSlice{}}
		s.service.Namespace, s.service.Name = "default", "web"
		return func(words []string) string { return s.run(t, strings.Join(words, " ")) }
	})
}

// decideScript is the state of a script.
type decideScript struct {
	service corev1.Service
	slices  map[string]*discoveryv1.EndpointSlice
	node    nodeFacts
}

func (s *decideScript) run(t *testing.T, line string) string {
	t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	var err error
	switch word {
	case "service":
		s.service.Spec = corev1.ServiceSpec{}
		err = yaml.UnmarshalStrict([]byte(rest), &s.service.Spec)
	case "labels":
		s.service.Labels = map[string]string{}
		for _, pair := range strings.Fields(rest) {
			key, value, _ := strings.Cut(pair, "=")
			s.service.Labels[key] = value
		}
	case "given":
		s.service.Annotations = map[string]string{gr.LoadBalancerAnnotation: rest}
	case "status":
		s.service.Status = corev1.ServiceStatus{}
		err = yaml.UnmarshalStrict([]byte(rest), &s.service.Status)
	case "slice":
		words := strings.Fields(rest)
		s.slices[words[0]] = parseSlice(t, words[1], words[2:])
	case "forget":
		delete(s.slices, rest)
	case "node":
		s.node = nodeFacts{name: "here"}
		var others []netip.Addr
		s.node.ofNode = func(ip netip.Addr) bool { return slices.Contains(others, ip) || slices.Contains(s.node.addresses, ip) }
		for _, w := range strings.Fields(rest) {
			switch k, v, _ := strings.Cut(w, "="); k {
			case "zone":
				s.node.zone = v
			case "address":
				s.node.addresses = append(s.node.addresses, netip.MustParseAddr(v))
			case "externalIPs":
				s.node.externalIPs = append(s.node.externalIPs, netip.MustParsePrefix(v))
			case "balancers":
				s.node.balancers = append(s.node.balancers, netip.MustParsePrefix(v))
			case "others":
				others = append(others, netip.MustParseAddr(v))
			case "kept":
				n, err := strconv.ParseUint(v, 10, 16)
				if err != nil {
					t.Fatal(err)
				}
				s.node.kept = append(s.node.kept, uint16(n))
			default:
				t.Fatalf("unknown field %q", w)
			}
		}
	case "decide":
		var list []*discoveryv1.EndpointSlice
		for _, x := range s.slices {
			list = append(list, x)
		}
		return formatDecision(decide(&s.service, list, s.node))
	default:
		t.Fatalf("unknown command: %q", line)
	}
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return ""
}

func parseSlice(t *testing.T, portText string, endpoints []string) *discoveryv1.EndpointSlice {
	t.Helper()
	name, number, ok := strings.Cut(portText, ":")
	if !ok {
		name, number = "", portText
	}
	number, protocol, _ := strings.Cut(number, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	out := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
	out.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: new(int32(n)), Protocol: new(corev1.Protocol(protocol))}}
	for _, text := range endpoints {
		if text == "headless" {
			out.Labels = map[string]string{corev1.IsHeadlessService: ""}
			continue
		}
		words := strings.Split(text, ",")
		e := discoveryv1.Endpoint{Addresses: words[:1]}
		if strings.Contains(words[0], ":") {
			out.AddressType = discoveryv1.AddressTypeIPv6
		}
		for _, w := range words[1:] {
			k, v, hint := strings.Cut(w, "=")
			if hint && e.Hints == nil {
				e.Hints = &discoveryv1.EndpointHints{}
			}
			switch k {
			case "unready":
				e.Conditions.Ready = new(false)
			case "terminating":
				e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
			case "gone":
				e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)}
			case "zone":
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: v})
			case "for":
				e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: v})
			default:
				e.NodeName = &w
			}
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out
}

// formatDecision prints the rules that a Service needs, in the order in which a packet passes them.
func formatDecision(w wanted) string {
	var out strings.Builder
	for _, p := range w.ports {
		fmt.Fprintf(&out, "%s %s", p.Name, map[uint8]string{6: "TCP", 17: "UDP", 132: "SCTP"}[p.Protocol])
		if p.Affinity > 0 {
			fmt.Fprintf(&out, " affinity %v", p.Affinity)
		}
		fmt.Fprintln(&out)
		for _, v := range p.VIPs {
			fmt.Fprintf(&out, "  %s -> %s\n", netip.AddrPortFrom(v.Addr, v.Port), v.Target)
		}
		if p.NodePort != 0 {
			fmt.Fprintf(&out, "  node port %d -> %s\n", p.NodePort, p.NodePortTarget)
		}
		if len(p.Sources) > 0 {
			fmt.Fprintf(&out, "  firewall: from %v -> external\n", p.Sources)
		}
		if p.External != servicetable.ExternalNone {
			fmt.Fprintf(&out, "  external: %s\n", p.External)
		}
		if len(p.Cluster) > 0 {
			fmt.Fprintf(&out, "  cluster: %v\n", p.Cluster)
		}
		if len(p.Local) > 0 {
			fmt.Fprintf(&out, "  local: %v\n", p.Local)
		}
		if len(p.Hairpin) > 0 {
			fmt.Fprintf(&out, "  hairpin: %v\n", p.Hairpin)
		}
	}
	if w.health != nil {
		fmt.Fprintf(&out, "health check on %d: %d\n", w.health.port, w.health.local)
	}
	if len(w.unserved) > 0 {
		fmt.Fprintf(&out, "not served: %v\n", w.unserved)
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte(`{clusterIP: 10.96.0.1, ports: [{port: 80}]}`), []byte(`{addressType: IPv4, ports: [{name: "", port: 80}], endpoints: [{addresses: [10.0.0.1]}]}`))
	f.Add([]byte(`{clusterIP: "::", type: LoadBalancer, loadBalancerSourceRanges: [" 10.0.0.0/8 "], ports: [{port: 1, nodePort: 2}]}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, spec, sliceText []byte) {
		svc, s := &corev1.Service{}, &discoveryv1.EndpointSlice{}
		if yaml.Unmarshal(spec, &svc.Spec) != nil || yaml.Unmarshal(sliceText, s) != nil {
			return
		}
		for _, p := range decide(svc, []*discoveryv1.EndpointSlice{s},
			nodeFacts{name: "here", allowed: allowed{externalIPs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"),
				netip.MustParsePrefix("::/0")}}}).ports {
			for _, v := range p.VIPs {
				if !v.Addr.IsValid() || v.Addr.Is6() != p.IPv6 {
					t.Errorf("%v in a port of the other family", v)
				}
				if v.Target == servicetable.ToCluster && len(p.Cluster) == 0 || v.Target == servicetable.ToLocal && len(p.Local) == 0 {
					t.Errorf("%v has no endpoints", v)
				}
			}
		}
	})
}
