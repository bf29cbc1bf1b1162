package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/deviceallocator"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/framework/frameworktest"
	"proa.dev/schedule/plugins"
	"proa.dev/schedule/plugins/preemption"
)

// TestWorlds makes decisions about whole clusters in text files, with further objects besides nodes and Pods. A case begins with
// "=== " and its name; its lines are
//
//	node NAME [cpu=4] [pods=10] [taint=KEY:EFFECT] [LABEL=VALUE]
//	pod [NAMESPACE/]NAME [on=NODE] [waits=NODE] [owner=KIND/NAME] [cpu=1] [priority=1] [age=SECONDS]
//	    [gone] [ending] [claim=NAME:CLAIM] [LABEL=VALUE]
//	object KIND [NAMESPACE/]NAME
//	config PLUGIN ARGUMENTS
//	only PLUGIN...
//	evaluator         enables selectors of devices, which have the form ATTRIBUTE=VALUE in these cases
//	extender          adds a scheduler extender; see fakeExtender
//	decide POD        prints the score of every node, or why it is rejected
//	choose POD        prints the chosen node; unlike decide it calls extenders
//	preempt POD       prints the preemption candidates and the result of PostFilter for a Pod that fits nowhere
//	reserve POD       decides, adds the Pod to its node, and calls Reserve
//
// Indented lines are YAML: the spec of a node or a Pod, or a whole object. The result follows with a ">".
func TestWorlds(t *testing.T) {
	textcase.Play(t, "testdata/worlds/*.txt", "=== ", func(t *testing.T, body string) string {
		w := &world{T: t, objects: frameworktest.Objects{}, pods: map[string]*corev1.Pod{}, args: map[string]json.RawMessage{},
			plugins: map[string]framework.Plugin{}}
		w.state = framework.NewState(w.objects)
		return w.play(body)
	})
}

// kindsOfObjects returns an empty object of a kind that cases can use, and its resource.
func kindsOfObjects(name string) (kind.Object, schema.GroupResource) {
	switch name {
	case "Namespace":
		return &corev1.Namespace{}, gr.Namespaces
	case "Service":
		return &corev1.Service{}, gr.Services
	case "ReplicaSet":
		return &appsv1.ReplicaSet{}, gr.ReplicaSets
	case "StatefulSet":
		return &appsv1.StatefulSet{}, gr.StatefulSets
	case "ReplicationController":
		return &corev1.ReplicationController{}, gr.ReplicationControllers
	case "PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}, gr.PodDisruptionBudgets
	case "PersistentVolume":
		return &corev1.PersistentVolume{}, gr.PersistentVolumes
	case "PersistentVolumeClaim":
		return &corev1.PersistentVolumeClaim{}, gr.PersistentVolumeClaims
	case "StorageClass":
		return &storagev1.StorageClass{}, gr.StorageClasses
	case "CSINode":
		return &storagev1.CSINode{}, gr.CSINodes
	case "CSIDriver":
		return &storagev1.CSIDriver{}, gr.CSIDrivers
	case "CSIStorageCapacity":
		return &storagev1.CSIStorageCapacity{}, gr.CSIStorageCapacities
	case "VolumeAttachment":
		return &storagev1.VolumeAttachment{}, gr.VolumeAttachments
	case "ResourceClaim":
		return &resourcev1.ResourceClaim{}, gr.ResourceClaims
	case "ResourceSlice":
		return &resourcev1.ResourceSlice{}, gr.ResourceSlices
	case "DeviceClass":
		return &resourcev1.DeviceClass{}, gr.DeviceClasses
	}
	return nil, schema.GroupResource{}
}

type world struct {
	*testing.T
	objects   frameworktest.Objects
	state     *framework.State
	pods      map[string]*corev1.Pod
	args      map[string]json.RawMessage
	only      []string
	plugins   map[string]framework.Plugin
	selector  deviceallocator.Selector
	extenders []*framework.Extender
}

func (w *world) play(body string) string {
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(body, "\n"), "\n")
	for i := 0; i < len(lines); {
		from := i
		words := strings.Fields(lines[from])
		for i++; i < len(lines) && (strings.HasPrefix(lines[i], " ") || strings.HasPrefix(lines[i], ">")); i++ {
		}
		rest := slices.DeleteFunc(slices.Clone(lines[from+1:i]), func(l string) bool { return strings.HasPrefix(l, ">") })
		for _, l := range append([]string{lines[from]}, rest...) {
			out.WriteString(l + "\n")
		}
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		for line := range strings.Lines(w.do(words, lines[from], strings.Join(rest, "\n"))) {
			out.WriteString("> " + line)
		}
	}
	return out.String()
}

func (w *world) do(words []string, line, text string) string {
	switch words[0] {
	case "node":
		w.node(words[1], words[2:], text)
	case "pod":
		w.pod(words[1], words[2:], text)
	case "object":
		o, on := kindsOfObjects(words[1])
		if o == nil {
			w.Fatalf("no kind %q", words[1])
		}
		w.parse(text, o)
		namespace, name := split(words[2])
		if _, namespaced := o.(*corev1.PersistentVolumeClaim); !strings.Contains(words[2], "/") && !namespaced {
			namespace = ""
		}
		o.SetNamespace(namespace)
		o.SetName(name)
		o.SetUID(types.UID("uid-" + name))
		w.objects.Put(on, o)
	case "config":
		raw, err := yaml.YAMLToJSON([]byte(strings.TrimPrefix(line, "config "+words[1]+" ")))
		if err != nil {
			w.Fatal(err)
		}
		w.args[words[1]] = raw
	case "only":
		w.only = words[1:]
	case "evaluator":
		w.selector = func(expression, _ string, d *resourcev1.Device) (bool, error) {
			name, value, _ := strings.Cut(expression, "=")
			a, has := d.Attributes[resourcev1.QualifiedName(name)]
			return has && a.StringValue != nil && *a.StringValue == value, nil
		}
	case "decide":
		d := w.decide(words[1], true)
		return strings.ReplaceAll(describe(&d), " All 0\n", "\n")
	case "extender":
		e := &fakeExtender{}
		w.parse(text, e)
		w.extenders = append(w.extenders, e.extender())
	case "choose":
		d := w.decide(words[1], false)
		return fmt.Sprintf("score %d\n%s", d.Score, describe(&d))
	case "preempt":
		return w.preempt(words[1])
	case "reserve":
		return w.reserve(words[1])
	default:
		w.Fatalf("no such line: %q", line)
	}
	return ""
}

// split splits a key into namespace and name.
func split(key string) (string, string) {
	if namespace, name, both := strings.Cut(key, "/"); both {
		return namespace, name
	}
	return "default", key
}

func (w *world) parse(text string, into any) {
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		w.Fatalf("%v in\n%s", err, text)
	}
}

func (w *world) node(name string, words []string, spec string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": apiresource.MustParse("100"), "memory": apiresource.MustParse("1Ti"),
		"pods": apiresource.MustParse("110")}
	for _, word := range words {
		key, value, set := strings.Cut(word, "=")
		switch {
		case key == "cpu" || key == "pods":
			n.Status.Allocatable[corev1.ResourceName(key)] = apiresource.MustParse(value)
		case key == "taint":
			k, effect, _ := strings.Cut(value, ":")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Effect: corev1.TaintEffect(effect)})
		case !set:
			delete(n.Labels, strings.TrimPrefix(key, "-"))
		case key == "zone":
			n.Labels[corev1.LabelTopologyZone] = value
		default:
			n.Labels[key] = value
		}
	}
	w.parse(spec, &n.Spec)
	w.state.SetNode(n)
}

func (w *world) pod(key string, words []string, spec string) {
	namespace, name := split(key)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(key), Labels: map[string]string{}}}
	w.parse(spec, &p.Spec)
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}}
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			w.Fatal(err)
		}
		return n
	}
	on, waits := "", ""
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "on":
			on = value
		case "waits":
			waits = value
		case "cpu":
			p.Spec.Containers[0].Resources.Requests["cpu"] = apiresource.MustParse(value)
		case "priority":
			p.Spec.Priority = new(int32(number(value)))
		case "age":
			p.Status.StartTime = &metav1.Time{Time: start.Add(-time.Duration(number(value)) * time.Second)}
		case "gone":
			p.DeletionTimestamp = &metav1.Time{Time: start}
		case "ending":
			p.DeletionTimestamp = &metav1.Time{Time: start}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: corev1.PodReasonPreemptionByScheduler}}
		case "claim":
			name, claim, _ := strings.Cut(value, ":")
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses,
				corev1.PodResourceClaimStatus{Name: name, ResourceClaimName: &claim})
		case "owner":
			k, n, _ := strings.Cut(value, "/")
			version := "apps/v1"
			if k == "ReplicationController" {
				version = "v1"
			}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: k, Name: n, UID: types.UID("uid-" + n),
				Controller: new(true)}}
		default:
			p.Labels[key] = value
		}
	}
	w.pods[key] = p
	if on != "" {
		w.state.AddPod(framework.NewPodInfo(p), on)
	}
	if waits != "" {
		p.Status.NominatedNodeName = waits
		w.state.Nominate(waits, append(slices.Clone(w.state.Snapshot().Nominated(waits)), framework.NewPodInfo(p)))
	}
}

func (w *world) profile() *framework.Profile {
	chosen, err := plugins.Assemble(nil, w.args, framework.Deps{Views: w.objects, Select: w.selector})
	if err != nil {
		w.Fatal(err)
	}
	for i := range chosen { // plugins keep their state during a case
		if plugin, found := w.plugins[chosen[i].Name]; found {
			chosen[i] = plugin
		} else {
			w.plugins[chosen[i].Name] = chosen[i]
		}
	}
	if w.only != nil {
		chosen = slices.DeleteFunc(chosen, func(p framework.Plugin) bool { return !slices.Contains(w.only, p.Name) })
		// Without scoring plugin the search ends with the first feasible node; here all are examined.
		chosen = append(chosen, framework.Plugin{Name: "All", Weight: 1,
			Prepare: func(*framework.Snapshot, *framework.PodInfo) framework.Prepared {
				return framework.Prepared{Reuse: framework.ReuseWhileNodeUnchanged, Score: func(*framework.NodeInfo) int64 { return 0 }}
			}})
	}
	return &framework.Profile{Name: corev1.DefaultSchedulerName, Plugins: chosen, Extenders: w.extenders}
}

func (w *world) info(name string) *framework.PodInfo {
	if w.pods[name] == nil {
		w.Fatalf("no pod %q", name)
	}
	return framework.NewPodInfo(w.pods[name])
}

func (w *world) decide(name string, explain bool) framework.Decision {
	s, profile := w.state.Snapshot(), w.profile()
	d := Decide(s, w.info(name), profile, framework.Seed{})
	if !explain {
		return d
	}
	explained := Explain(s, w.info(name), profile, framework.Seed{})
	if explained.Node != d.Node || explained.Message() != d.Message() {
		w.Errorf("Decide returns %q %q, Explain %q %q", d.Node, d.Message(), explained.Node, explained.Message())
	}
	return explained
}

// preempt returns the preemption candidates and the result of PostFilter. The eviction itself is tested in testdata/loop.
func (w *world) preempt(name string) string {
	d := w.decide(name, false)
	if d.Node != "" {
		return "fits " + d.Node + "\n"
	}
	a := framework.PostFilterInput{Snapshot: w.state.Snapshot(), Pod: w.info(name), Profile: w.profile(), Decision: &d}
	var out strings.Builder
	p := preemption.NewPreemptor(preemption.Arguments{Percentage: 10, Absolute: 100}, framework.Deps{})
	if preemption.IneligibleReason(a) == "" {
		all, _ := p.FindCandidates(a)
		slices.SortFunc(all, func(a, b framework.PreemptionCandidate) int { return strings.Compare(a.Node, b.Node) })
		for _, c := range all {
			fmt.Fprintf(&out, "%s without", c.Node)
			for _, v := range c.Victims {
				fmt.Fprintf(&out, " %s", v.Pod.Name)
			}
			if c.BudgetViolations > 0 {
				fmt.Fprintf(&out, ", against %d budgets", c.BudgetViolations)
			}
			out.WriteString("\n")
		}
	}
	r := p.PostFilter(context.Background(), a)
	if r.Node != "" {
		fmt.Fprintf(&out, "-> %s\n", r.Node)
	}
	if r.ClearNomination {
		out.WriteString("clear\n")
	}
	d.PostFilterMessage = r.Message
	out.WriteString(d.Message() + "\n")
	return out.String()
}

// reserve decides about a Pod, adds it to its node and calls Reserve.
func (w *world) reserve(name string) string {
	d := w.decide(name, false)
	if d.Node == "" {
		return "-> " + d.Message() + "\n"
	}
	w.state.AddPod(w.info(name), d.Node)
	for i := range d.Prepared {
		if p := &d.Prepared[i]; p.Reserve != nil {
			if r := p.Reserve(d.Node); r != nil {
				return fmt.Sprintf("-> %s, but %s says %s\n", d.Node, p.Name, strings.Join(r.Reasons, ", "))
			}
		}
	}
	return "-> " + d.Node + "\n"
}
