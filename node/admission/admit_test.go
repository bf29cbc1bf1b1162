package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/node/nodetest"
)

// testInput is the input of a case of testdata/admit.txt.
type testInput struct {
	Node     corev1.Node
	Pod      corev1.Pod
	Others   []corev1.Pod
	Pressure []corev1.NodeConditionType
	Unsafe   []string
	Stopping bool
	Enforces bool // whether the node has AppArmor
	Resizes  bool // whether the Pod is resized, not admitted
}

func TestAdmit(t *testing.T) {
	nodetest.Cases(t, "testdata/admit.txt", func(t *testing.T, input string) string {
		var s testInput
		defaultNode := "Node: {metadata: {name: n, labels: {zone: a}}, status: {allocatable: {cpu: 100m, memory: 1Gi, pods: 4, ephemeral-storage: 1Gi, example.com/gpu: 1}}}\n"
		if strings.Contains(input, "Node:") {
			defaultNode = ""
		}
		if err := yaml.UnmarshalStrict([]byte(defaultNode+input), &s); err != nil {
			t.Fatal(err)
		}
		n := Node{Node: &s.Node, Pressure: s.Pressure, Stopping: s.Stopping}
		if !s.Enforces {
			n.AppArmor = errors.New("AppArmor is not enabled on the host")
		}
		var err error
		if n.Sysctls, err = NewSysctls("6.1.0-13-amd64", s.Unsafe); err != nil {
			return "error: " + err.Error()
		}
		s.Pod.UID = "new"
		var others []*corev1.Pod
		for i := range s.Others {
			if s.Others[i].UID == "" {
				s.Others[i].UID = "old"
			}
			others = append(others, &s.Others[i])
		}
		if s.Resizes {
			if rejection := Resize(&s.Pod, others, n); rejection != nil {
				return rejection.Reason + ": " + rejection.Message
			}
			return "yes"
		}
		victims, rejection := Admit(&s.Pod, others, n)
		if rejection != nil {
			return rejection.Reason + ": " + rejection.Message
		}
		out := "yes"
		for _, v := range victims {
			out += fmt.Sprintf(" without %s", v.Name)
		}
		return out
	})
}

func TestSysctls(t *testing.T) {
	for _, bad := range []string{"", "kernel.panic", "a b", "*", "vm.*"} {
		if _, err := NewSysctls("6.1", []string{bad}); err == nil {
			t.Errorf("%q is allowed", bad)
		}
	}
	old, err := NewSysctls("4.4.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{
		Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.tcp_rmem"}}}}}
	if err := old.check(p); err == nil {
		t.Error("tcp_rmem is a safe sysctl on a kernel that is too old")
	}
}
