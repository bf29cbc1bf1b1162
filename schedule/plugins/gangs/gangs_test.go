package gangs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/framework/frameworktest"
)

// TestGang runs commands against the plugin: "pod NAME" creates a Pod of the gang, "gate NAME" calls PreEnqueue,
// "permit NAME" calls Permit, "late NAME" ends its wait by timeout, "bound NAME" calls PostBind, "gone NAME" calls
// Unreserve, and "waits" prints the waiting Pods with what they have received.
func TestGang(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"no group yet", "pod a; gate a; group 2; gate a; pod b; gate a", `
gate a: waiting for pods's pod group "g" to appear in scheduling queue
gate a: waiting for minCount pods from a gang to appear in scheduling queue
gate a: open`},
		{"enough go together", "group 2; pod a; pod b; pod c; permit a; waits; permit b; waits; permit c", `
permit a: waits, wakes b c
waits: a
permit b: goes
waits: a goes
permit c: goes`},
		{"the bound count", "group 2; pod a; pod b; pod c; permit a; permit b; bound a; bound b; permit c", `
permit a: waits, wakes b c
permit b: goes
permit c: goes`},
		{"all or nothing", "group 3; pod a; pod b; pod c; permit a; permit b; gone a; waits", `
permit a: waits, wakes b c
permit b: waits, wakes c
waits: b another pod of the gang gave up its place`},
		{"who goes already is not called back", "group 2; pod a; pod b; pod c; permit a; permit b; permit c; gone c; waits", `
permit a: waits, wakes b c
permit b: goes
permit c: goes
waits: a goes`},
		{"who leaves does not count, though its place is not free yet", "group 2; pod a; pod b; permit a; late a; permit b; waits", `
permit a: waits, wakes b
late a: leaves
permit b: waits, wakes a
waits: a b`},
		{"who has been counted on cannot leave", "group 2; pod a; pod b; permit a; permit b; late a; waits", `
permit a: waits, wakes b
permit b: goes
late a: is told
waits: a goes`},
		{"who was told to give up does not count", "group 3; pod a; pod b; pod c; pod d; permit a; permit b; gone a; permit c; permit d", `
permit a: waits, wakes b c d
permit b: waits, wakes c d
permit c: waits, wakes a b d
permit d: waits, wakes a b`},
		{"a group that is no gang", "group 0; pod a; gate a; permit a", `
gate a: open
permit a: goes`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := playGang(t, test.script); got != strings.TrimSpace(test.want) {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

func playGang(t *testing.T, script string) string {
	objects, woken := frameworktest.Objects{}, []string{}
	plugin := New(framework.Deps{Views: objects, Activate: func(uids ...types.UID) { woken = append(woken, string(uids[0])) }})
	pods, ways, waits, order := map[string]*corev1.Pod{}, map[string]framework.Prepared{}, map[string]<-chan *framework.Rejection{},
		[]string{}
	leaves := map[string]func() bool{}
	var out strings.Builder
	for line := range strings.SplitSeq(script, "; ") {
		words := strings.Fields(line)
		if len(words) == 1 {
			words = append(words, "")
		}
		name := words[1]
		switch words[0] {
		case "group":
			g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g"}}
			if name != "0" {
				var n int32
				if _, err := fmt.Sscan(name, &n); err != nil {
					t.Fatal(err)
				}
				g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: n}
			}
			objects.Put(framework.PodGroups(), g)
		case "pod":
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
			pods[name] = p
			objects.Put(gr.Pods, p)
			ways[name] = plugin.Prepare(nil, &framework.PodInfo{Pod: p})
		case "gate":
			if r := plugin.PreEnqueue(pods[name]); r != nil {
				fmt.Fprintf(&out, "gate %s: %s\n", name, r.Reasons[0])
			} else {
				fmt.Fprintf(&out, "gate %s: open\n", name)
			}
		case "permit":
			woken = nil
			switch p := ways[name].Permit("n"); {
			case p.Rejection != nil:
				t.Fatal(p.Rejection.Err)
			case p.Wait != nil:
				waits[name], leaves[name], order = p.Wait, p.GiveUp, append(order, name)
				fmt.Fprintf(&out, "permit %s: waits, wakes %s\n", name, strings.Join(sorted(woken), " "))
			default:
				fmt.Fprintf(&out, "permit %s: goes\n", name)
			}
		case "bound":
			b := pods[name].DeepCopy()
			b.Spec.NodeName = "n"
			objects.Put(gr.Pods, b)
			ways[name].PostBind("n")
		case "late":
			if leaves[name]() {
				fmt.Fprintf(&out, "late %s: leaves\n", name)
			} else {
				fmt.Fprintf(&out, "late %s: is told\n", name)
			}
		case "gone":
			ways[name].Unreserve("n")
			delete(waits, name)
		case "waits":
			out.WriteString("waits:")
			for _, name := range order {
				wait, is := waits[name]
				if !is {
					continue
				}
				fmt.Fprintf(&out, " %s", name)
				select {
				case r := <-wait:
					if r == nil {
						out.WriteString(" goes")
					} else {
						fmt.Fprintf(&out, " %s", r.Reasons[0])
					}
				default:
				}
			}
			out.WriteString("\n")
		}
	}
	return strings.TrimSpace(out.String())
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
