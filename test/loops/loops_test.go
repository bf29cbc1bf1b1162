package main

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestScenarios checks that each scenario has a description, known steps, and at least one snapshot.
func TestScenarios(t *testing.T) {
	all, err := readScenarios("scenarios", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("there are only %d scenarios", len(all))
	}
	for _, s := range all {
		snaps := 0
		for _, st := range s.steps {
			switch st.args[0] {
			case "snap":
				snaps++
			case "create":
				for _, o := range st.docs {
					if _, err := findResource(func(p apiResource) bool { return p.kind == text(o, "kind") }); err != nil {
						t.Errorf("%s:%d: %s: %v", s.name, st.line, text(o, "kind"), err)
					}
				}
				if len(st.docs) == 0 {
					t.Errorf("%s:%d: creates nothing", s.name, st.line)
				}
			case "patch":
				if len(st.docs) != 1 {
					t.Errorf("%s:%d: a patch has one document, not %d", s.name, st.line, len(st.docs))
				}
			case "delete", "evict", "kubelet", "silent", "node", "until", "sleep", "rest":
			default:
				t.Errorf("%s:%d: there is no step %q", s.name, st.line, st.args[0])
			}
		}
		if snaps == 0 || s.about == "" {
			t.Errorf("%s: %d snaps, about %q", s.name, snaps, s.about)
		}
	}
	if _, err := readReasons("explained.txt"); err != nil {
		t.Error(err)
	}
}

func objects(t *testing.T, docs string) (out []object) {
	t.Helper()
	for doc := range strings.SplitSeq(docs, "---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

const cluster = `
kind: ReplicaSet
metadata: {name: web-7d4b9c6f5b, namespace: s, uid: 11111111-0000-4000-8000-000000000001, resourceVersion: "7", labels: {pod-template-hash: 7d4b9c6f5b}, annotations: {deployment.kubernetes.io/revision: "1"}}
---
kind: Pod
metadata:
  name: web-7d4b9c6f5b-x2v4z
  namespace: s
  creationTimestamp: "2026-01-02T03:04:05Z"
  ownerReferences: [{kind: ReplicaSet, name: web-7d4b9c6f5b, uid: 11111111-0000-4000-8000-000000000001}]
spec: {nodeName: n2}
status: {podIP: 10.8.1.2, phase: Running}
---
kind: Event
type: Normal
reason: SuccessfulCreate
involvedObject: {kind: ReplicaSet, name: web-7d4b9c6f5b}
reportingComponent: replicaset-controller
source: {component: replicaset-controller}
message: "Created pod: web-7d4b9c6f5b-x2v4z"
`

// TestCanonical checks that two clusters which differ only in generated values, such as names, UIDs, addresses and times, compare as
// equal, and that other differences are found.
func TestCanonical(t *testing.T) {
	sc := &scenario{name: "s"}
	other := strings.NewReplacer("7d4b9c6f5b", "5bcd6", "x2v4z", "zzzzz", "11111111", "22222222", "10.8.1.2", "10.8.7.7", "n2", "n1",
		"03:04:05", "10:11:12", `"7"`, `"99"`).Replace(cluster)
	a := &record{Snaps: []snap{canonical("end", objects(t, cluster), sc)}}
	b := &record{Snaps: []snap{canonical("end", objects(t, other), sc)}}
	for _, d := range compare("s", a, b) {
		t.Errorf("these are the same: %s", d)
	}
	if want := "Normal SuccessfulCreate on ReplicaSet web-HASH1 by replicaset-controller: Created pod: web-HASH1-*"; a.Snaps[0].Events[0] != want {
		t.Errorf("event\n%s\nwant\n%s", a.Snaps[0].Events[0], want)
	}
	worse := strings.NewReplacer("phase: Running", "phase: Failed", "Created pod", "Made pod").Replace(other)
	got := compare("s", a, &record{Snaps: []snap{canonical("end", objects(t, worse), sc)}, Answers: []string{"refused"}})
	var paths []string
	for _, d := range got {
		paths = append(paths, d.Where+d.Path)
	}
	if len(got) != 4 || paths[3] != "end Pod web-HASH1-*.status.phase" {
		t.Errorf("four differences expected, got %q", paths)
	}
}

// TestKubelet checks which status the simulated kubelet gives a Pod with each rule.
func TestKubelet(t *testing.T) {
	pod := objects(t, `{metadata: {namespace: s, name: p, uid: abcd0000, labels: {app: web}}, spec: {nodeName: n1, containers: [{name: c, image: one}]}, status: {phase: Running}}`)[0]
	for _, c := range []struct{ verb, phase string }{{"ready", "Running"}, {"running", ""}, {"pending", ""}, {"succeed", "Succeeded"},
		{"fail 3", "Failed"}} {
		k := &kubelets{}
		k.add(rule{"other", "*", []string{"pending"}})
		k.add(rule{"s", "app=web", strings.Fields(c.verb)})
		if got := text(nextStatus(pod, k.verb(pod)), "phase"); got != c.phase {
			t.Errorf("%s: %q, want %q", c.verb, got, c.phase)
		}
	}
}
