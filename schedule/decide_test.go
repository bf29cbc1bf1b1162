package schedule

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/plugins"
)

// TestDecide makes decisions about clusters in text files. A case begins with "=== " and its name; its lines are
//
//	node NAME [cpu=4] [memory=8Gi] [pods=10] [gpu=2] [LABEL=VALUE] [taint=KEY:EFFECT] [image=NAME:SIZE] [cordoned]
//	pod NAME [on=NODE] [waits=NODE] [cpu=1] [memory=1Gi] [gpu=1] [port=80] [image=NAME] [priority=1] [LABEL=VALUE]
//	config PLUGIN ARGUMENTS
//	only PLUGIN...
//	decide POD
//
// Indented lines below a node or a pod are YAML of its spec. Without amounts a node is large. After "decide" follows
// the result: the scores of each node by plugin, or the rejection, and the chosen node.
func TestDecide(t *testing.T) {
	textcase.Play(t, "testdata/decide/*.txt", "=== ", func(t *testing.T, body string) string {
		c := &clusterCase{T: t, state: framework.NewState(nil), pods: map[string]*corev1.Pod{}, args: map[string]json.RawMessage{}}
		return c.play(body)
	})
}

type clusterCase struct {
	*testing.T
	state *framework.State
	pods  map[string]*corev1.Pod
	args  map[string]json.RawMessage
	only  []string
}

func (c *clusterCase) play(body string) string {
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(body, "\n"), "\n")
	for i := 0; i < len(lines); {
		line, from := lines[i], i
		words := strings.Fields(line)
		for i++; i < len(lines) && strings.HasPrefix(lines[i], " "); i++ {
		}
		spec := strings.Join(lines[from+1:i], "\n")
		if len(words) == 0 {
			out.WriteString("\n")
			continue
		}
		switch words[0] {
		case "node":
			c.node(words[1], words[2:], spec)
		case "pod":
			c.pod(words[1], words[2:], spec)
		case "config":
			raw, err := yaml.YAMLToJSON([]byte(strings.TrimPrefix(line, "config "+words[1]+" ")))
			if err != nil {
				c.Fatal(err)
			}
			c.args[words[1]] = raw
		case "only":
			c.only = words[1:]
		case "decide":
			out.WriteString(line + "\n" + c.decide(words[1]))
			return out.String()
		default:
			c.Fatalf("no such line: %q", line)
		}
		for _, l := range lines[from:i] {
			out.WriteString(l + "\n")
		}
	}
	c.Fatal("nothing is decided")
	return ""
}

func (c *clusterCase) node(name string, words []string, spec string) {
	n := &corev1.Node{}
	n.Name, n.Labels = name, map[string]string{}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("100"), "memory": resource.MustParse("1Ti"),
		"pods": resource.MustParse("110")}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "cpu", "memory", "pods":
			n.Status.Allocatable[corev1.ResourceName(key)] = resource.MustParse(value)
		case "gpu":
			n.Status.Allocatable["example.com/gpu"] = resource.MustParse(value)
		case "taint":
			k, effect, _ := strings.Cut(value, ":")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Effect: corev1.TaintEffect(effect)})
		case "image":
			at := strings.LastIndex(value, ":")
			n.Status.Images = append(n.Status.Images,
				corev1.ContainerImage{Names: []string{value[:at]}, SizeBytes: new(resource.MustParse(value[at+1:])).Value()})
		case "cordoned":
			n.Spec.Unschedulable = true
		default:
			n.Labels[key] = value
		}
	}
	if err := yaml.UnmarshalStrict([]byte(spec), &n.Spec); err != nil {
		c.Fatal(err)
	}
	c.state.SetNode(n)
}

func (c *clusterCase) pod(name string, words []string, spec string) {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID, p.Labels = "default", name, types.UID(name), map[string]string{}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		c.Fatal(err)
	}
	if len(p.Spec.Containers) == 0 {
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}}
	}
	first := &p.Spec.Containers[0]
	on, waits := "", ""
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "on":
			on = value
		case "waits":
			waits = value
		case "cpu", "memory", "ephemeral-storage":
			first.Resources.Requests[corev1.ResourceName(key)] = resource.MustParse(value)
		case "gpu":
			first.Resources.Requests["example.com/gpu"] = resource.MustParse(value)
		case "port":
			n, _ := strconv.Atoi(value)
			first.Ports = append(first.Ports, corev1.ContainerPort{HostPort: int32(n)})
		case "image":
			first.Image = value
		case "priority":
			n, _ := strconv.Atoi(value)
			p.Spec.Priority = new(int32(n))
		default:
			p.Labels[key] = value
		}
	}
	c.pods[name] = p
	if on != "" {
		c.state.AddPod(framework.NewPodInfo(p), on)
	}
	if waits != "" {
		c.state.Nominate(waits, []*framework.PodInfo{framework.NewPodInfo(p)})
	}
}

func (c *clusterCase) decide(name string) string {
	chosen, err := plugins.Assemble(nil, c.args, framework.Deps{})
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	if c.only != nil {
		chosen = slices.DeleteFunc(chosen, func(p framework.Plugin) bool { return !slices.Contains(c.only, p.Name) })
	}
	profile := &framework.Profile{Plugins: chosen}
	s, pod := c.state.Snapshot(), framework.NewPodInfo(c.pods[name])
	d := Explain(s, pod, profile, framework.Seed{})
	if short := Decide(s, pod, profile, framework.Seed{}); short.Node != d.Node || short.Message() != d.Message() {
		c.Errorf("Decide says %q %q, Explain says %q %q", short.Node, short.Message(), d.Node, d.Message())
	}
	return describe(&d)
}

// describe formats a decision.
func describe(d *framework.Decision) string {
	var out strings.Builder
	slices.SortFunc(d.Scores, func(a, b framework.NodeScores) int { return strings.Compare(a.Node, b.Node) })
	for _, n := range d.Scores {
		fmt.Fprintf(&out, "%s: %d =", n.Node, n.Total)
		for i, v := range n.ByPlugin {
			fmt.Fprintf(&out, " %s %d", d.ScoredBy[i], v)
		}
		out.WriteString("\n")
	}
	slices.SortFunc(d.Rejections, func(a, b framework.NodeRejection) int { return strings.Compare(a.Node, b.Node) })
	for _, v := range d.Rejections {
		fmt.Fprintf(&out, "%s: no: %s", v.Node, strings.Join(v.Reasons, ", "))
		if v.Unresolvable {
			out.WriteString(" (for good)")
		}
		fmt.Fprintf(&out, " by %s\n", v.Plugin)
	}
	if d.Node != "" {
		fmt.Fprintf(&out, "-> %s\n", d.Node)
	} else {
		fmt.Fprintf(&out, "-> %s\n", d.Message())
	}
	return out.String()
}
