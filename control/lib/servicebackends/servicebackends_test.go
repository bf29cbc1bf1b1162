package servicebackends

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/internal/textcase"
)

// TestRepack runs the cases of testdata/repack.txt: subsets as PORTS: ADDRESSES, an address that is not ready with a ! after
// it, and after the arrow the result.
func TestRepack(t *testing.T) {
	textcase.Decide(t, "testdata/repack.txt", "->", func(t *testing.T, in string) string {
		subsets := parseSubsets(in)
		got := showSubsets(Repack(subsets))
		slices.Reverse(subsets)
		if reversed := showSubsets(Repack(subsets)); reversed != got {
			t.Errorf("another order gives\n%s", reversed)
		}
		if twice := showSubsets(Repack(Repack(subsets))); twice != got {
			t.Errorf("Repack twice gives\n%s", twice)
		}
		return got
	})
}

func parseSubsets(text string) (out []corev1.EndpointSubset) {
	for line := range strings.Lines(text) {
		ports, addresses, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		var s corev1.EndpointSubset
		for p := range strings.FieldsSeq(ports) {
			name, number, _ := strings.Cut(p, "=")
			n, _ := strconv.Atoi(number)
			s.Ports = append(s.Ports, corev1.EndpointPort{Name: name, Port: int32(n), Protocol: corev1.ProtocolTCP})
		}
		for a := range strings.FieldsSeq(addresses) {
			a, unready := strings.CutSuffix(a, "!")
			ip, uid, _ := strings.Cut(a, "/")
			address := corev1.EndpointAddress{IP: ip}
			if uid != "" {
				address.TargetRef = &corev1.ObjectReference{UID: types.UID(uid)}
			}
			if unready {
				s.NotReadyAddresses = append(s.NotReadyAddresses, address)
			} else {
				s.Addresses = append(s.Addresses, address)
			}
		}
		out = append(out, s)
	}
	return out
}

func showSubsets(subsets []corev1.EndpointSubset) string {
	var lines []string
	for _, s := range subsets {
		var ports, addresses []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s=%d", p.Name, p.Port))
		}
		show := func(list []corev1.EndpointAddress, mark string) {
			for _, a := range list {
				text := a.IP
				if a.TargetRef != nil {
					text += "/" + string(a.TargetRef.UID)
				}
				addresses = append(addresses, text+mark)
			}
		}
		show(s.Addresses, "")
		show(s.NotReadyAddresses, "!")
		lines = append(lines, strings.TrimSpace(strings.Join(ports, " ")+": "+strings.Join(addresses, " ")))
	}
	return strings.Join(lines, "\n")
}

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1",
		Labels: map[string]string{"app": "web", "tier": "front"}}}
	p.Spec.NodeName = "n1"
	p.Status.PodIP, p.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestChangesEndpoint(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing":    {func(*corev1.Pod) {}, false},
		"annotation": {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, false},
		"other condition": {func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "x"}) },
			false},
		"running":          {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, false},
		"ended":            {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"unready":          {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"address":          {func(p *corev1.Pod) { p.Status.PodIPs = p.Status.PodIPs[:1] }, true},
		"label":            {func(p *corev1.Pod) { p.Labels["app"] = "x" }, true},
		"deleted":          {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, true},
		"name in a domain": {func(p *corev1.Pod) { p.Spec.Hostname = "h" }, true},
		"another pod":      {func(p *corev1.Pod) { p.UID = "2" }, true},
	} {
		if got := ChangesEndpoint(pod(), pod(c.change)); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	if !ChangesEndpoint(nil, pod()) || !ChangesEndpoint(pod(), nil) {
		t.Error("a new pod, or a deleted one, does not count")
	}
}

func TestSelects(t *testing.T) {
	for text, want := range map[string]bool{"": false, "app=web": true, "app=web tier=front": true, "app=web tier=back": false,
		"none=": false} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
		for p := range strings.FieldsSeq(text) {
			if s.Spec.Selector == nil {
				s.Spec.Selector = map[string]string{}
			}
			k, v, _ := strings.Cut(p, "=")
			s.Spec.Selector[k] = v
		}
		if got := Selects(s, pod().Labels); got != want {
			t.Errorf("%q: %v", text, got)
		}
		// A Service that selects a pod must be found by one of the pod's labels.
		if want && !slices.ContainsFunc(ByLabel().Values(pod()),
			func(v string) bool { return slices.Contains(BySelector().Values(s), v) }) {
			t.Errorf("%q is not found by the labels of the pod", text)
		}
	}
}

func TestPort(t *testing.T) {
	p := pod(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80,
			Protocol: corev1.ProtocolTCP}, {Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}}}
		beside := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "first", ContainerPort: 1, Protocol: corev1.ProtocolTCP}}},
			{RestartPolicy: &beside, Ports: []corev1.ContainerPort{{Name: "side", ContainerPort: 2, Protocol: corev1.ProtocolTCP}}},
		}
	})
	for target, want := range map[string]int32{"8080": 8080, "web": 80, "dns": 0, "first": 0, "side": 2, "none": 0} {
		n, ok := Ports(p)(&corev1.ServicePort{TargetPort: intstr.Parse(target), Protocol: corev1.ProtocolTCP})
		if n != want || ok != (want != 0) {
			t.Errorf("%s: %d %v, want %d", target, n, ok, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	if got := Addresses(pod(), true); !slices.Equal(got, []string{"fd00::1"}) {
		t.Errorf("version 6: %v", got)
	}
	old := pod(func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "010.0.0.01"}, {IP: "junk"}} })
	bad := pod()
	for _, ip := range []string{"127.0.0.1", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "::ffff:127.0.0.1", "x"} {
		bad.Status.PodIPs = []corev1.PodIP{{IP: ip}}
		if got := slices.Concat(Addresses(bad, false), Addresses(bad, true)); len(got) > 0 {
			t.Errorf("%s becomes an endpoint that the API refuses: %v", ip, got)
		}
	}
	if got := Addresses(old, false); !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Errorf("an address in an old form: %v", got)
	}
}

func TestListed(t *testing.T) {
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	none := func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "", nil }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	if !HasEndpoint(pod(), false) || HasEndpoint(pod(none), true) || HasEndpoint(pod(ended), true) || HasEndpoint(pod(deleted), false) ||
		!HasEndpoint(pod(deleted), true) {
		t.Error("Listed is wrong about some pod")
	}
}

func TestCause(t *testing.T) {
	at := func(n int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.Unix(n, 0) }
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(100, 0)}}
	if got := TriggerTime(s, true, []*corev1.Pod{pod(at(5))}); !got.Equal(time.Unix(100, 0)) {
		t.Errorf("first: %v", got)
	}
	if got := TriggerTime(s, false, []*corev1.Pod{pod(at(7)), pod(at(5)), pod(at(9))}); !got.Equal(time.Unix(5, 0)) {
		t.Errorf("earliest: %v", got)
	}
	if got := TriggerTime(s, false, nil); !got.IsZero() {
		t.Errorf("nothing: %v", got)
	}
	stamped := AnnotateTriggerTime(nil, time.Unix(5, 0))
	if stamped[corev1.EndpointsLastChangeTriggerTime] != "1970-01-01T00:00:05Z" || len(AnnotateTriggerTime(stamped, time.Time{})) != 0 {
		t.Errorf("annotations %v", stamped)
	}
}
