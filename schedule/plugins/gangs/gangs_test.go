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

// TestGang runs commands against the plugin: "pod NAME" creates a Pod of the gang, "gate NAME" calls PreEnqueue, "permit NAME"
// calls Permit, "timeout NAME" calls GiveUp of a waiting Pod, "bound NAME" calls PostBind, "unreserve NAME" calls Unreserve, and
// "waits" prints the waiting Pods with their results.
func TestGang(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"no group yet", "pod a; gate a; group 2; gate a; pod b; gate a", `
gate a: waiting for pods's pod group "g" to appear in scheduling queue
gate a: waiting for minCount pods from a gang to appear in scheduling queue
gate a: open`},
		{"enough Pods are permitted together", "group 2; pod a; pod b; pod c; permit a; waits; permit b; waits; permit c", `
permit a: waits, wakes b c
waits: a
permit b: permitted
waits: a permitted
permit c: permitted`},
		{"bound Pods count", "group 2; pod a; pod b; pod c; permit a; permit b; bound a; bound b; permit c", `
permit a: waits, wakes b c
permit b: permitted
permit c: permitted`},
		{"all or nothing", "group 3; pod a; pod b; pod c; permit a; permit b; unreserve a; waits", `
permit a: waits, wakes b c
permit b: waits, wakes c
waits: b another pod of the gang gave up its place`},
		{"a permitted Pod is not rejected later", "group 2; pod a; pod b; pod c; permit a; permit b; permit c; unreserve c; waits", `
permit a: waits, wakes b c
permit b: permitted
permit c: permitted
waits: a permitted`},
		{"a Pod that has timed out does not count, though it is not unreserved yet", "group 2; pod a; pod b; permit a; timeout a; permit b; waits", `
permit a: waits, wakes b
timeout a: gives up
permit b: waits, wakes a
waits: a b`},
		{"a permitted Pod cannot time out", "group 2; pod a; pod b; permit a; permit b; timeout a; waits", `
permit a: waits, wakes b
permit b: permitted
timeout a: has a result
waits: a permitted`},
		{"a rejected Pod does not count", "group 3; pod a; pod b; pod c; pod d; permit a; permit b; unreserve a; permit c; permit d", `
permit a: waits, wakes b c d
permit b: waits, wakes c d
permit c: waits, wakes a b d
permit d: waits, wakes a b`},
		{"a group that is no gang", "group 0; pod a; gate a; permit a", `
gate a: open
permit a: permitted`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := runGangScript(t, test.script); got != strings.TrimSpace(test.want) {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

func runGangScript(t *testing.T, script string) string {
	objects, woken := frameworktest.Objects{}, []string{}
	plugin := New(framework.Deps{Views: objects, Activate: func(uids ...types.UID) { woken = append(woken, string(uids[0])) }})
	pods, prepared, waits, order := map[string]*corev1.Pod{}, map[string]framework.Prepared{}, map[string]<-chan *framework.Rejection{},
		[]string{}
	giveUp := map[string]func() bool{}
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
			prepared[name] = plugin.Prepare(nil, &framework.PodInfo{Pod: p})
		case "gate":
			if r := plugin.PreEnqueue(pods[name]); r != nil {
				fmt.Fprintf(&out, "gate %s: %s\n", name, r.Reasons[0])
			} else {
				fmt.Fprintf(&out, "gate %s: open\n", name)
			}
		case "permit":
			woken = nil
			switch p := prepared[name].Permit("n"); {
			case p.Rejection != nil:
				t.Fatal(p.Rejection.Err)
			case p.Wait != nil:
				waits[name], giveUp[name], order = p.Wait, p.GiveUp, append(order, name)
				fmt.Fprintf(&out, "permit %s: waits, wakes %s\n", name, strings.Join(sorted(woken), " "))
			default:
				fmt.Fprintf(&out, "permit %s: permitted\n", name)
			}
		case "bound":
			b := pods[name].DeepCopy()
			b.Spec.NodeName = "n"
			objects.Put(gr.Pods, b)
			prepared[name].PostBind("n")
		case "timeout":
			if giveUp[name]() {
				fmt.Fprintf(&out, "timeout %s: gives up\n", name)
			} else {
				fmt.Fprintf(&out, "timeout %s: has a result\n", name)
			}
		case "unreserve":
			prepared[name].Unreserve("n")
			delete(waits, name)
		case "waits":
			out.WriteString("waits:")
			for _, name := range order {
				wait, waiting := waits[name]
				if !waiting {
					continue
				}
				fmt.Fprintf(&out, " %s", name)
				select {
				case r := <-wait:
					if r == nil {
						out.WriteString(" permitted")
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
