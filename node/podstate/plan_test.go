package podstate

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/node/fact"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata")

// testCase is a Pod with its facts and the inputs of ComputePlan and ComputeStatus, parsed from lines such as:
//
//	pod POLICY; init A; side S; C; eph E     containers by kind; a name may be followed by key=value
//	sandbox N ready|dead [noip]              newest first
//	run NAME running|exited=CODE|created|unknown [#ATTEMPT] [box=N] [hash=H] [interrupted]
//	volumes | image NAME | busy NAME | hold NAME 1s | backoff NAME 10s | failed NAME liveness | unready NAME | unstarted NAME
//	waiting NAME REASON MESSAGE | ended | termination REASON MESSAGE | deleted | was PHASE | gate TYPE [STATUS]
type testCase struct {
	pod      *corev1.Pod
	facts    *fact.Pod
	known    PlanInput
	seen     StatusInput
	health   map[string]Health
	backoffs map[string]time.Duration
	holds    map[string]time.Duration
}

func parseCase(t *testing.T, text string) *testCase {
	t.Helper()
	s := &testCase{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", Generation: 2}},
		facts: &fact.Pod{UID: "u"}, health: map[string]Health{}, backoffs: map[string]time.Duration{}, holds: map[string]time.Duration{}}
	s.known = PlanInput{Images: map[string]bool{}, Busy: map[string]bool{}, Hash: func(*corev1.Container) string { return "h" },
		Health:  func(id string) Health { return s.healthOf(id) },
		Backoff: func(name string, _ time.Time) time.Duration { return s.backoffs[name] },
		Hold:    func(name string) time.Duration { return s.holds[name] }}
	s.seen = StatusInput{Runtime: "containerd", Waiting: map[string]fact.Waiting{}, Health: s.known.Health, Now: time.Unix(2000, 0),
		HostIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			s.parseLine(t, line)
		}
	}
	return s
}

func (s *testCase) healthOf(id string) Health {
	if h, found := s.health[strings.TrimSuffix(id, "-id")]; found {
		return h
	}
	return Health{Started: true, Ready: true}
}

func (s *testCase) parseLine(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	switch words[0] {
	case "pod":
		s.parseSpec(strings.TrimPrefix(line, "pod "))
	case "sandbox":
		n, _ := strconv.Atoi(words[1])
		box := fact.Sandbox{ID: "box" + words[1], Attempt: uint32(n), Ready: words[2] == "ready", Network: true,
			IPs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}
		if slices.Contains(words, "noip") {
			box.IPs = nil
		}
		s.facts.Sandboxes = append(s.facts.Sandboxes, box)
	case "run":
		s.parseRun(t, words[1:])
	case "volumes":
		s.known.Volumes, s.seen.Volumes = true, true
	case "image":
		s.known.Images[words[1]] = true
	case "busy":
		s.known.Busy[words[1]] = true
	case "hold":
		s.holds[words[1]], _ = time.ParseDuration(words[2])
	case "backoff":
		s.backoffs[words[1]], _ = time.ParseDuration(words[2])
	case "failed":
		s.health[words[1]] = Health{Started: true, Ready: true, Failed: &ProbeFailure{Probe: words[2]}}
	case "unready":
		s.health[words[1]] = Health{Started: true}
	case "unstarted":
		s.health[words[1]] = Health{}
	case "waiting":
		s.seen.Waiting[words[1]] = fact.Waiting{Reason: words[2], Message: strings.Join(words[3:], " ")}
	case "ended":
		s.seen.Ended = true
	case "termination":
		s.seen.Termination = &Termination{Reason: words[1], Message: strings.Join(words[2:], " "), Rejected: len(s.facts.Sandboxes) == 0}
	case "deleted":
		s.pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1990, 0)}
	case "was":
		s.pod.Status.Phase = corev1.PodPhase(words[1])
	case "wasrunning":
		s.pod.Status.ContainerStatuses = append(s.pod.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: words[1], ContainerID: "containerd://old",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	case "gate":
		s.pod.Spec.ReadinessGates = append(s.pod.Spec.ReadinessGates,
			corev1.PodReadinessGate{ConditionType: corev1.PodConditionType(words[1])})
		if len(words) > 2 {
			s.pod.Status.Conditions = append(s.pod.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodConditionType(words[1]), Status: corev1.ConditionStatus(words[2])})
		}
	default:
		t.Fatalf("unknown command: %q", line)
	}
}

func (s *testCase) parseSpec(text string) {
	for i, part := range strings.Split(text, ";") {
		words := strings.Fields(part)
		if i == 0 {
			s.pod.Spec.RestartPolicy = corev1.RestartPolicy(words[0])
			continue
		}
		c := corev1.Container{Name: words[len(words)-1], Image: "img"}
		if name, policy, own := strings.Cut(c.Name, "="); own {
			c.Name, c.RestartPolicy = name, new(corev1.ContainerRestartPolicy(policy))
			if code, rule := strings.CutPrefix(policy, "all"); rule {
				n, _ := strconv.Atoi(code)
				c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
				c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers,
					ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn,
						Values: []int32{int32(n)}}}}
			}
		}
		switch words[0] {
		case "init":
			s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, c)
		case "side":
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, c)
		case "eph":
			s.pod.Spec.EphemeralContainers = append(s.pod.Spec.EphemeralContainers,
				corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)})
		default:
			s.pod.Spec.Containers = append(s.pod.Spec.Containers, c)
		}
	}
}

func (s *testCase) parseRun(t *testing.T, words []string) {
	t.Helper()
	c := fact.Container{Name: words[0], ID: words[0] + "-id", SandboxID: s.facts.Sandboxes[0].ID, Hash: "h", Image: "img", ImageID: "sha",
		Created: time.Unix(1000, 0), Started: time.Unix(1001, 0)}
	state, code, _ := strings.Cut(words[1], "=")
	switch state {
	case "running":
		c.State = fact.Running
	case "created":
		c.State = fact.Created
	case "unknown":
		c.State = fact.Unknown
	case "exited":
		n, _ := strconv.Atoi(code)
		c.State, c.ExitCode, c.Finished = fact.Exited, int32(n), time.Unix(1500, 0)
		c.CompleteEnd()
	default:
		t.Fatalf("unknown state %q", state)
	}
	for _, w := range words[2:] {
		if n, ok := strings.CutPrefix(w, "#"); ok {
			attempt, _ := strconv.Atoi(n)
			c.Attempt = uint32(attempt)
			c.ID = fmt.Sprintf("%s-id%d", c.Name, attempt)
		} else if n, ok := strings.CutPrefix(w, "box="); ok {
			c.SandboxID = "box" + n
		} else if h, ok := strings.CutPrefix(w, "hash="); ok {
			c.Hash = h
		} else if w == "interrupted" {
			MarkInterrupted(&c)
		}
	}
	s.facts.Containers = append(s.facts.Containers, c)
}

func (p Plan) String() string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p.Volumes {
		add("volumes")
	}
	if p.Sandbox != nil {
		add("sandbox %d changed=%v", *p.Sandbox, p.Recreated)
	}
	for _, n := range p.Pull {
		add("pull %s", n)
	}
	for _, n := range p.Start {
		add("start %s", n)
	}
	for _, k := range p.Kill {
		add("kill %s: %s", k.ID, k.Message)
	}
	for _, n := range p.BackingOff {
		add("backing %s", n)
	}
	for _, id := range p.Reset {
		add("reset %s", id)
	}
	if p.Done {
		add("done")
	}
	if p.WakeAfter > 0 {
		add("again %s", p.WakeAfter)
	}
	if out == nil {
		add("nothing")
	}
	return strings.Join(out, "\n")
}

// runCases runs the cases of a file: "== name", the input, "->", and the output.
func runCases(t *testing.T, file string, run func(*testCase) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), "== ")
	var again strings.Builder
	again.WriteString(head)
	for _, c := range strings.Split(rest, "\n== ") {
		name, body, _ := strings.Cut(c, "\n")
		in, want, _ := strings.Cut(body, "->\n")
		got := run(parseCase(t, in))
		if got != strings.TrimSpace(want) && !*update {
			t.Errorf("%s:\n%s\ngives\n%s\nwant\n%s", name, in, got, strings.TrimSpace(want))
		}
		fmt.Fprintf(&again, "== %s\n%s->\n%s\n\n", name, in, got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.TrimSuffix(again.String(), "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPlan(t *testing.T) {
	runCases(t, "testdata/plan.txt", func(s *testCase) string { return ComputePlan(s.pod, s.facts, s.known).String() })
}

func TestStatus(t *testing.T) {
	runCases(t, "testdata/status.txt", func(s *testCase) string { return formatStatus(ComputeStatus(s.pod, s.facts, s.seen)) })
}

func formatStatus(st *corev1.PodStatus) string {
	var out []string
	add := func(format string, args ...any) {
		out = append(out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
	}
	add("%s %s %s", st.Phase, st.Reason, st.Message)
	if st.PodIP != "" {
		add("ip %s", st.PodIP)
	}
	for _, c := range append(append(st.InitContainerStatuses, st.ContainerStatuses...), st.EphemeralContainerStatuses...) {
		flags := ""
		if c.Ready {
			flags += " ready"
		}
		if c.Started != nil && *c.Started {
			flags += " started"
		}
		if c.RestartCount > 0 {
			flags += fmt.Sprintf(" restarts=%d", c.RestartCount)
		}
		add("%s: %s%s", c.Name, formatState(c.State), flags)
		if last := formatState(c.LastTerminationState); last != "" {
			add("%s before: %s", c.Name, last)
		}
	}
	for _, c := range st.Conditions {
		add("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return strings.Join(out, "\n")
}

func formatState(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Waiting != nil:
		return strings.TrimSpace("waiting " + s.Waiting.Reason + " " + s.Waiting.Message)
	case s.Terminated != nil:
		return fmt.Sprintf("terminated %d %s", s.Terminated.ExitCode, s.Terminated.Reason)
	}
	return ""
}
