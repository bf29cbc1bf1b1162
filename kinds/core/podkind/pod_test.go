package podkind

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestPodRows compares the cells of pods in many states with those that upstream shows.
func TestPodRows(t *testing.T) {
	text, err := os.ReadFile("testdata/rows.yaml")
	if err != nil {
		t.Fatal(err)
	}
	def := Pods()
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var c struct {
			Title      string           `json:"title"`
			Spec       corev1.PodSpec   `json:"spec"`
			Status     corev1.PodStatus `json:"status"`
			Want       []string         `json:"want"`
			Conditions []string         `json:"conditions"`
		}
		if err := yaml.UnmarshalStrict(doc, &c); err != nil {
			t.Fatal(err)
		}
		p := &corev1.Pod{Spec: c.Spec, Status: c.Status}
		if p.Status.Phase == "" {
			p.Status.Phase = corev1.PodPending
		}
		defaultPod(p)
		var got, reasons []string
		for i, cell := range def.Row(p) {
			if text := cell.(string); i != 0 && i != 4 { // name and age
				got = append(got, strings.Split(text, " ")[0])
			}
		}
		for _, condition := range def.RowConditions(p) {
			reasons = append(reasons, condition.Reason)
		}
		if !reflect.DeepEqual(got, c.Want) || strings.Join(reasons, ",") != strings.Join(c.Conditions, ",") {
			t.Errorf("%s: row %q with %q, want %q with %q", c.Title, got, reasons, c.Want, c.Conditions)
		}
	}
}

func TestPodRowOfDeletion(t *testing.T) {
	p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if got := summarize(p).reason; got != "Terminating" {
		t.Errorf("a pod that is deleted is %s", got)
	}
	p.Status.Reason = "NodeLost"
	if got := summarize(p).reason; got != "Unknown" {
		t.Errorf("a pod whose node is lost is %s", got)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
	if got := summarize(p).reason; got != "Succeeded" {
		t.Errorf("a pod that has ended is %s", got)
	}
	s := summary{restarts: 2, last: metav1.NewTime(time.Now().Add(-5 * time.Minute))}
	if got := s.restartsText(); got != "2 (5m ago)" {
		t.Errorf("restarts are %s", got)
	}
}

func TestPodGrace(t *testing.T) {
	for _, c := range []struct {
		title string
		node  string
		phase corev1.PodPhase
		spec  int64
		asked *int64
		want  int64
	}{
		{"the pod's own", "n", corev1.PodRunning, 30, nil, 30},
		{"the client's", "n", corev1.PodRunning, 30, new(int64(5)), 5},
		{"none, as asked", "n", corev1.PodRunning, 30, new(int64(0)), 0},
		{"negative", "n", corev1.PodRunning, 30, new(int64(-3)), 1},
		{"not scheduled", "", corev1.PodPending, 30, new(int64(5)), 0},
		{"failed", "n", corev1.PodFailed, 30, nil, 0},
		{"succeeded", "n", corev1.PodSucceeded, 30, nil, 0},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: c.node, TerminationGracePeriodSeconds: &c.spec},
			Status: corev1.PodStatus{Phase: c.phase}}
		if got := gracePeriod(p, &metav1.DeleteOptions{GracePeriodSeconds: c.asked}); got != c.want {
			t.Errorf("%s: %d seconds, want %d", c.title, got, c.want)
		}
	}
}

// TestStoredPodKeepsForbiddenFields checks that a stored Pod may keep what a new Pod must not have.
func TestStoredPodKeepsForbiddenFields(t *testing.T) {
	const spec = `
tolerations: [{key: a, operator: Lt, value: "1"}]
hostNetwork: true
hostUsers: false
securityContext: {sysctls: [{name: net.core.somaxconn, value: "1"}]}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {"a b": c}}}]
affinity:
  nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: ["a b"]}]}]}}
  podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchExpressions: [{key: a, operator: In, values: ["a b"]}]}}]}
initContainers: [{name: i, image: x, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]
containers:
- name: c
  image: x
  resources: {limits: {cpu: 1, hugepages-2Mi: 1Mi}}
  securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}
  volumeDevices: [{name: pvc, devicePath: /d}]
serviceAccountName: s
volumes: [{name: pvc, persistentVolumeClaim: {claimName: x}}, {name: i, image: {reference: ""}}, {name: t, projected: {sources: [{serviceAccountToken: {path: /t}}]}}]
`
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", ResourceVersion: "1",
		Annotations: map[string]string{"controller.kubernetes.io/pod-deletion-cost": "x"}}}
	if err := yaml.UnmarshalStrict([]byte(spec), &old.Spec); err != nil {
		t.Fatal(err)
	}
	defaultPod(old)
	if errs := validatePod(old, nil); len(errs) != 14 {
		t.Errorf("%d errors on create:\n%v", len(errs), errs.ToAggregate())
	}
	changed := old.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	if errs := validatePod(changed, old); len(errs) != 0 {
		t.Errorf("errors on update: %v", errs.ToAggregate())
	}
}

func TestContainerMayRestart(t *testing.T) {
	ended := func(code int32) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "c",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
	}
	running := []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	rule := func(operator corev1.ContainerRestartRuleOnExitCodesOperator) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: []int32{3}}}}
	}
	for _, c := range []struct {
		title      string
		policy     corev1.RestartPolicy
		container  corev1.Container
		code       int32
		mayRestart bool
	}{
		{"always", corev1.RestartPolicyAlways, corev1.Container{}, 0, true},
		{"never", corev1.RestartPolicyNever, corev1.Container{}, 1, false},
		{"on failure, failed", corev1.RestartPolicyOnFailure, corev1.Container{}, 1, true},
		{"on failure, done", corev1.RestartPolicyOnFailure, corev1.Container{}, 0, false},
		{"its own policy", corev1.RestartPolicyNever, corev1.Container{RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}, 0, true},
		{"its own rule", corev1.RestartPolicyNever,
			corev1.Container{RestartPolicy: new(corev1.ContainerRestartPolicyNever),
				RestartPolicyRules: rule(corev1.ContainerRestartRuleOnExitCodesOpIn)}, 3, true},
		{"another code", corev1.RestartPolicyAlways,
			corev1.Container{RestartPolicy: new(corev1.ContainerRestartPolicyNever),
				RestartPolicyRules: rule(corev1.ContainerRestartRuleOnExitCodesOpIn)}, 4, false},
		{"not that code", corev1.RestartPolicyNever,
			corev1.Container{RestartPolicy: new(corev1.ContainerRestartPolicyNever),
				RestartPolicyRules: rule(corev1.ContainerRestartRuleOnExitCodesOpNotIn)}, 4, true},
	} {
		c.container.Name = "c"
		old := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: c.policy, Containers: []corev1.Container{c.container}},
			Status: corev1.PodStatus{ContainerStatuses: ended(c.code)}}
		p := old.DeepCopy()
		p.Status.ContainerStatuses = running
		if mayRestart := len(validatePodStatus(p, old)) == 0; mayRestart != c.mayRestart {
			t.Errorf("%s: may restart %v, want %v", c.title, mayRestart, c.mayRestart)
		}
	}
}
