package networkpolicy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
)

// TestScenes runs the scripts in testdata/scenes: each line is a command, and the indented lines below it are its output.
//
//	scene TITLE          starts a new cluster
//	namespace NAME [LABELS]     LABELS are k=v, separated by commas
//	pod NS/NAME ADDRS [LABELS] [WORD...]    a Pod; words are node=N (default n1), PORTNAME:PROTOCOL:NUMBER, host, and
//	                     a phase; the address - stands for none
//	policy NS/NAME {SPEC}       a NetworkPolicy
//	gone KIND NAME       an object is deleted
//	attach NODE NS/NAME ADDRS [UID]   a Pod is attached on a node
//	ask FROM TO PORT...  whether connections are allowed: FROM and TO are Pods (NS/NAME, or NS/NAME/6 for its IPv6) or addresses, PORT is
//	                     protocol:number, or a TCP port. The oracle must agree, unless a ! is in front
//	                     of FROM.
//	plan NODE            shows the plan of a node
//	changes NODE         shows what has changed in it since it was shown last
func TestScenes(t *testing.T) {
	textcase.Stories(t, "testdata/scenes/*.txt", func(t *testing.T) func([]string) string {
		t.Helper()
		s := newTwoNodes()
		return func(words []string) string { return s.run(t, strings.Join(words, " ")) }
	})
}

// twoNodes is a cluster of two nodes, n1 and n2, with the plan of each.
type twoNodes struct {
	*cluster
	nodes map[string]*resolver
	clock int
}

func newTwoNodes() *twoNodes {
	return &twoNodes{newCluster(), map[string]*resolver{"n1": newResolver("n1"), "n2": newResolver("n2")}, 0}
}

func (s *twoNodes) run(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	switch words[0] {
	case "scene":
		*s = *newTwoNodes()
	case "namespace":
		s.namespaces[words[1]] = map[string]string{"kubernetes.io/metadata.name": words[1]}
		for _, w := range words[2:] {
			maps.Copy(s.namespaces[words[1]], labelsOf(w))
		}
		for _, r := range s.nodes {
			r.setNamespace(words[1], s.namespaces[words[1]])
		}
	case "pod":
		s.pod(t, words[1:])
	case "policy":
		_, spec, _ := strings.Cut(line, "{")
		p := &networkingv1.NetworkPolicy{}
		k := keyOf(words[1])
		p.Namespace, p.Name = k.namespace, k.name
		if err := yaml.UnmarshalStrict([]byte("{"+spec), &p.Spec); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s.policies[k] = p
		for _, r := range s.nodes {
			r.setPolicy(k, readPolicy(p))
		}
	case "gone":
		s.remove(t, words[1], words[2])
	case "attach":
		k, uid := keyOf(words[2]), ""
		if len(words) > 4 {
			uid = words[4]
		}
		s.nodes[words[1]].attach(k, uid, addrsOf(words[3]))
	case "ask":
		return s.evaluate(t, words[1], words[2], words[3:])
	case "plan":
		return formatPlan(s.nodes[words[1]].model)
	case "changes":
		return formatChanges(s.nodes[words[1]].model)
	default:
		t.Fatalf("unknown command: %q", line)
	}
	return ""
}

func (s *twoNodes) pod(t *testing.T, words []string) {
	t.Helper()
	s.clock++
	k := keyOf(words[0])
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = k.namespace, k.name, types.UID(words[0])
	p.CreationTimestamp = metav1.Unix(int64(s.clock), 0)
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	for _, a := range addrsOf(words[1]) {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	for _, w := range words[2:] {
		switch name, rest, _ := strings.Cut(w, ":"); {
		case rest != "":
			protocol, number, _ := strings.Cut(rest, ":")
			n, _ := strconv.Atoi(number)
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports,
				corev1.ContainerPort{Name: name, Protocol: corev1.Protocol(strings.ToUpper(protocol)), ContainerPort: int32(n)})
		case strings.HasPrefix(w, "node="):
			p.Spec.NodeName = w[5:]
		case strings.HasPrefix(w, "uid="):
			p.UID = types.UID(w[4:])
		case w == "host":
			p.Spec.HostNetwork = true
		case strings.Contains(w, "="):
			p.Labels = labelsOf(w)
		default:
			p.Status.Phase = corev1.PodPhase(w)
		}
	}
	if old := s.pods[k]; old != nil && old.UID == p.UID {
		p.CreationTimestamp = old.CreationTimestamp
	}
	s.pods[k] = p
	for _, r := range s.nodes {
		r.setPod(k, p)
	}
}

func (s *twoNodes) remove(t *testing.T, what, name string) {
	t.Helper()
	for _, r := range s.nodes {
		switch what {
		case "namespace":
			delete(s.namespaces, name)
			r.setNamespace(name, nil)
		case "pod":
			delete(s.pods, keyOf(name))
			r.setPod(keyOf(name), nil)
		case "policy":
			delete(s.policies, keyOf(name))
			r.setPolicy(keyOf(name), nil)
		case "attachment":
			r.detach(addrsOf(name))
		default:
			t.Fatalf("unknown kind %s", what)
		}
	}
}

// evaluate evaluates a connection with the plans of the nodes that it touches.
func (s *twoNodes) evaluate(t *testing.T, from, to string, ports []string) string {
	t.Helper()
	from, onlyPlans := strings.CutPrefix(from, "!")
	f := flow{from: s.address(t, from), to: s.address(t, to)}
	var out []string
	for _, word := range ports {
		protocol, number, ok := strings.Cut(word, ":")
		if !ok {
			protocol, number = "tcp", word
		}
		f.protocol = corev1.Protocol(strings.ToUpper(protocol))
		f.port, _ = strconv.Atoi(number)
		passes := s.nodes["n1"].passes(f) && s.nodes["n2"].passes(f)
		if !onlyPlans && passes != s.allows(f) {
			t.Errorf("%s to %s at %s: the oracle decides %v", from, to, word, s.allows(f))
		}
		out = append(out, word+" "+map[bool]string{true: "yes", false: "no"}[passes])
	}
	return strings.Join(out, ", ") + "\n"
}

func (s *twoNodes) address(t *testing.T, name string) netip.Addr {
	t.Helper()
	if a, err := netip.ParseAddr(name); err == nil {
		return a
	}
	name, six := strings.CutSuffix(name, "/6")
	if p := s.pods[keyOf(name)]; p != nil {
		for _, ip := range p.Status.PodIPs {
			if a := netip.MustParseAddr(ip.IP); a.Is6() == six {
				return a
			}
		}
	}
	t.Fatalf("%s has no address", name)
	return netip.Addr{}
}

func keyOf(text string) key {
	namespace, name, _ := strings.Cut(text, "/")
	return key{namespace, name}
}

func addrsOf(text string) (out []netip.Addr) {
	for a := range strings.SplitSeq(text, ",") {
		if a != "-" {
			out = append(out, netip.MustParseAddr(a))
		}
	}
	return out
}

func labelsOf(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		k, v, _ := strings.Cut(pair, "=")
		out[k] = v
	}
	return out
}

// formatPlan prints a plan with readable names instead of hashes.
func formatPlan(w *model) string {
	var out strings.Builder
	readable := strings.NewReplacer(w.names()...)
	for _, name := range slices.Sorted(maps.Keys(w.sets)) {
		s := w.sets[name]
		var list []string
		for e, to := range s.elements {
			text := e.addr.String()
			if e.port != 0 {
				text += fmt.Sprint(" ", portMatch{protocol: e.protocol, first: e.port, last: e.port})
			}
			if to != "" {
				text += " > " + to
			}
			list = append(list, text)
		}
		slices.Sort(list)
		for _, x := range s.spans {
			list = append(list, x.String())
		}
		if len(list) > 0 || s.text != "" {
			fmt.Fprintf(&out, "%s: %s\n", readable.Replace(name), readable.Replace(strings.Join(list, ", ")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.chains)) {
		fmt.Fprintf(&out, "%s:\n", readable.Replace(name))
		for _, l := range w.chains[name].lines {
			fmt.Fprintf(&out, "  %s\n", readable.Replace(l.String()))
		}
	}
	w.markWritten()
	return out.String()
}

// names returns pairs of a name and its readable form.
func (w *model) names() (out []string) {
	for name, s := range w.sets {
		if s.peer.pods != nil {
			out = append(out, name, "pods of "+s.text)
		} else if s.spans != nil {
			out = append(out, name, "blocks")
		}
	}
	for name, c := range w.chains {
		kind, _, _ := strings.Cut(name, "-")
		if kind == "ports" {
			var all []string
			for _, l := range c.lines {
				all = append(all, strings.TrimSuffix(strings.TrimPrefix(l.String(), "at named-"), " accept"))
			}
			out = append(out, name, "ports "+strings.Join(all, "+"))
		}
		for _, d := range []string{"in-", "out-"} {
			if rest, ok := strings.CutPrefix(name, d); ok {
				out = append(out, name, d+rest[21:])
			}
			if rest, ok := strings.CutPrefix(name, "wall-"+d); ok {
				var all []string
				for _, l := range c.lines {
					if l.chain != "" {
						all = append(all, l.chain[len(d)+21:])
					}
				}
				out = append(out, "wall-"+d+rest, "wall-"+d+strings.Join(all, "+"))
			}
		}
	}
	return out
}

func formatChanges(w *model) string {
	var out []string
	for name := range w.touchedSets {
		what := "set " + name
		switch s := w.sets[name]; {
		case s == nil:
			what += " gone"
		default:
			for e, was := range s.touched {
				now, there := s.elements[e]
				if was.exists == there && was.value == now {
					continue
				}
				what += fmt.Sprintf(" %s %v->%v", e.addr, was.exists, there)
			}
		}
		out = append(out, what)
	}
	for name := range w.touchedChains {
		what := "chain " + name
		if w.chains[name] == nil {
			what += " gone"
		}
		out = append(out, what)
	}
	readable := strings.NewReplacer(w.names()...)
	w.markWritten()
	if len(out) == 0 {
		return "nothing\n"
	}
	slices.Sort(out)
	return readable.Replace(strings.Join(out, "\n") + "\n")
}
