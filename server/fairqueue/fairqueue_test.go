package fairqueue

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestSuggestedSchemas classifies requests by the schemas that every cluster starts with: user, groups, verb and
// resource.
func TestSuggestedSchemas(t *testing.T) {
	s := New(600)
	const known = "system:authenticated"
	for _, test := range []struct{ user, groups, verb, what, schema, level string }{
		{"admin", "system:masters " + known, "create", "pods ns", "exempt", "exempt"},
		{"alice", known, "get", "/healthz", "probes", "exempt"},
		{"system:anonymous", "system:unauthenticated", "get", "/readyz", "probes", "exempt"},
		{"alice", known, "get", "/readyz/etcd", "probes", "exempt"},
		{"system:node:a", "system:nodes " + known, "update", "nodes/status", "system-node-high", "node-high"},
		{"system:node:a", "system:nodes " + known, "update", "coordination.k8s.io/leases kube-node-lease", "system-node-high", "node-high"},
		{"system:node:a", "system:nodes " + known, "list", "secrets ns", "system-nodes", "system"},
		{"system:kube-controller-manager", known, "update", "coordination.k8s.io/leases kube-system", "system-leader-election",
			"leader-election"},
		{"system:kube-controller-manager", known, "list", "pods", "kube-controller-manager", "workload-high"},
		{"system:kube-scheduler", known, "create", "pods/binding ns", "kube-scheduler", "workload-high"},
		{"system:serviceaccount:kube-system:job-controller", "system:serviceaccounts system:serviceaccounts:kube-system " + known, "create",
			"pods ns", "kube-system-service-accounts", "workload-high"},
		{"system:serviceaccount:ns:x", "system:serviceaccounts system:serviceaccounts:ns " + known, "create", "pods ns", "service-accounts",
			"workload-low"},
		{"alice", known, "create", "pods ns", "global-default", "global-default"},
		{"nobody", "", "create", "pods ns", "catch-all", "catch-all"},
	} {
		f := s.Classify(parseRequest(test.user, test.groups, test.verb, test.what))
		want := test.schema + " " + test.level
		if got := f.Schema + " " + f.Level; got != want {
			t.Errorf("%s %s %s is %s, want %s", test.user, test.verb, test.what, got, want)
		}
	}
}

// parseRequest parses "GROUP/RESOURCE/SUB NAMESPACE", of which only the resource is required, or a path.
func parseRequest(name, groups, verb, what string) *Request {
	a := &Request{User: &user.DefaultInfo{Name: name, Groups: strings.Fields(groups)}, Verb: verb}
	if strings.HasPrefix(what, "/") {
		a.Path = what
		return a
	}
	a.IsResource = true
	resource, namespace, _ := strings.Cut(what, " ")
	a.Namespace = namespace
	parts := strings.Split(resource, "/")
	if strings.Contains(parts[0], ".") {
		a.Group, parts = parts[0], parts[1:]
	}
	a.Resource = parts[0]
	if len(parts) > 1 {
		a.Subresource = parts[1]
	}
	return a
}

func TestRules(t *testing.T) {
	rule := func(change func(*flowcontrolv1.ResourcePolicyRule)) *schema {
		r := flowcontrolv1.ResourcePolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true,
			Namespaces: []string{"*"}}
		change(&r)
		all := flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: "*"}}
		return &schema{rules: []flowcontrolv1.PolicyRulesWithSubjects{{Subjects: []flowcontrolv1.Subject{all},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{r}}}}
	}
	for _, test := range []struct {
		name    string
		change  func(*flowcontrolv1.ResourcePolicyRule)
		matches string
		no      string
	}{
		{"everything", func(*flowcontrolv1.ResourcePolicyRule) {}, "pods ns, nodes, pods/status ns, apps.x/deployments ns", "/version"},
		{"a resource", func(r *flowcontrolv1.ResourcePolicyRule) { r.Resources = []string{"pods", "nodes/status"} },
			"pods ns, nodes/status", "nodes, pods/status ns"},
		{"a namespace", func(r *flowcontrolv1.ResourcePolicyRule) { r.Namespaces = []string{"ns"} }, "pods ns, nodes", "pods other"},
		{"namespaces only", func(r *flowcontrolv1.ResourcePolicyRule) { r.ClusterScope = false }, "pods ns", "nodes, pods"},
		{"a group", func(r *flowcontrolv1.ResourcePolicyRule) { r.APIGroups = []string{"apps.x"} }, "apps.x/deployments ns", "pods ns"},
		{"a verb", func(r *flowcontrolv1.ResourcePolicyRule) { r.Verbs = []string{"list"} }, "", "pods ns"},
	} {
		s := rule(test.change)
		for what := range strings.SplitSeq(test.matches, ", ") {
			if what != "" && !s.matches(parseRequest("a", "", "get", what)) {
				t.Errorf("%s: %s does not match", test.name, what)
			}
		}
		for what := range strings.SplitSeq(test.no, ", ") {
			if s.matches(parseRequest("a", "", "get", what)) {
				t.Errorf("%s: %s matches", test.name, what)
			}
		}
	}
}

// newDispatcher returns a dispatcher with priority levels. The requests of a level come from users with the level's name:
// "high", "high.a", "high.b" …
func newDispatcher(seats int, levels ...string) testDispatcher {
	s := New(seats)
	var configs []*flowcontrolv1.PriorityLevelConfiguration
	var schemas []*flowcontrolv1.FlowSchema
	zero := int32(0)
	for _, text := range append(levels, "catch-all shares=0") {
		words := strings.Fields(text)
		limited := &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: new(int32(10)), LendablePercent: &zero,
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue,
				Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 1, QueueLengthLimit: 2}},
		}
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			n, err := strconv.Atoi(value)
			if err != nil {
				panic(err)
			}
			switch name {
			case "shares":
				limited.NominalConcurrencyShares = new(int32(n))
			case "lend":
				limited.LendablePercent = new(int32(n))
			case "borrow":
				limited.BorrowingLimitPercent = new(int32(n))
			case "reject":
				limited.LimitResponse = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
			}
		}
		configs = append(configs, &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: words[0]},
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: limited}})
		if words[0] == "catch-all" {
			continue
		}
		var rules []flowcontrolv1.PolicyRulesWithSubjects
		for _, name := range []string{words[0], words[0] + ".a", words[0] + ".b"} {
			rules = append(rules, flowcontrolv1.PolicyRulesWithSubjects{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser,
					User: &flowcontrolv1.UserSubject{Name: name}}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
			})
		}
		schemas = append(schemas, &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: words[0]},
			Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: words[0]}, MatchingPrecedence: 100,
				Rules:               rules,
				DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			}})
	}
	s.Set(schemas, configs)
	return testDispatcher{s, schemas, configs}
}

// testDispatcher is a dispatcher with its configuration.
type testDispatcher struct {
	*Dispatcher
	schemas []*flowcontrolv1.FlowSchema
	configs []*flowcontrolv1.PriorityLevelConfiguration
}

// runScript runs the words of a script in virtual time: "+NAME" sends a request of a user, "+3×NAME" three, "-NAME" ends the
// first of them that runs, "wait" lets the longest wait pass. It reports which requests run and wait after each word, and
// which were rejected.
func runScript(t *testing.T, s testDispatcher, script string) string {
	t.Helper()
	var out strings.Builder
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		runs, waits, refused := map[string][]func(){}, map[string]int{}, map[string]int{}
		results := make(chan func())
		send := func(name string) {
			waits[name]++
			f := s.Classify(parseRequest(name, "", "get", "/x"))
			go func() {
				release, err := f.Enter(ctx, 1)
				results <- func() {
					waits[name]--
					if err != nil {
						refused[name]++
					} else {
						runs[name] = append(runs[name], release)
					}
				}
			}()
		}
		settle := func() {
			for {
				synctest.Wait()
				select {
				case apply := <-results:
					apply()
					continue
				default:
				}
				return
			}
		}
		for word := range strings.FieldsSeq(script) {
			n, name := 1, word[1:]
			if count, rest, many := strings.Cut(name, "×"); many {
				n, _ = strconv.Atoi(count)
				name = rest
			}
			switch {
			case word == "wait":
				(<-results)() // time passes until a request times out
			case word[0] == '+':
				for range n {
					send(name)
					settle()
				}
			case word[0] == '-':
				for range n {
					release := runs[name][0]
					runs[name] = runs[name][1:]
					release()
					settle()
				}
			}
			settle()
			fmt.Fprintf(&out, "%s:%s%s%s\n", word, show(" run", lengths(runs)), show(" wait", waits), show(" refused", refused))
			clear(refused)
		}
		stop()
		settle()
		for _, all := range runs {
			for _, release := range all {
				release()
			}
		}
	})
	return out.String()
}

func lengths(in map[string][]func()) map[string]int {
	out := map[string]int{}
	for name, l := range in {
		out[name] = len(l)
	}
	return out
}

func show(word string, in map[string]int) string {
	out := ""
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if in[name] > 0 {
			out += fmt.Sprintf(" %d×%s", in[name], name)
		}
	}
	if out == "" {
		return ""
	}
	return word + out
}

func TestSeats(t *testing.T) {
	for _, test := range []struct {
		name   string
		seats  int
		levels string
		script string
		want   string
	}{
		{"levels do not take each other's seats", 4, "high shares=10; low shares=10", "+3×low +2×high -low -low", `
+3×low: run 2×low wait 1×low
+2×high: run 2×high 2×low wait 1×low
-low: run 2×high 2×low
-low: run 2×high 1×low`},
		{"a level rejects requests", 2, "low reject=1", "+3×low -low +low", `
+3×low: run 2×low refused 1×low
-low: run 1×low
+low: run 2×low`},
		{"idle seats are lent", 4, "high shares=10 lend=50; low shares=10", "+4×low +2×high -low -low", `
+4×low: run 3×low wait 1×low
+2×high: run 1×high 3×low wait 1×high 1×low
-low: run 2×high 2×low wait 1×low
-low: run 2×high 2×low`},
		{"borrowing has a limit", 8, "high shares=10 lend=100; low shares=10 borrow=25", "+6×low", `
+6×low: run 5×low wait 1×low`},
		{"a flood of one user does not delay others", 1, "low", "+low.a +2×low.a +low.b -low.a -low.a", `
+low.a: run 1×low.a
+2×low.a: run 1×low.a wait 2×low.a
+low.b: run 1×low.a wait 2×low.a 1×low.b
-low.a: run 1×low.a wait 1×low.a 1×low.b
-low.a: run 1×low.b wait 1×low.a`},
		{"a large flow leaves some seats to others", 16, "low", "+16×low.a +2×low.b +low.b -low.a -low.b -2×low.a", `
+16×low.a: run 14×low.a wait 2×low.a
+2×low.b: run 14×low.a 2×low.b wait 2×low.a
+low.b: run 14×low.a 2×low.b wait 2×low.a 1×low.b
-low.a: run 13×low.a 3×low.b wait 2×low.a
-low.b: run 13×low.a 2×low.b wait 2×low.a
-2×low.a: run 12×low.a 2×low.b wait 1×low.a`},
		{"a full queue rejects requests", 1, "low", "+low +2×low +low", `
+low: run 1×low
+2×low: run 1×low wait 2×low
+low: run 1×low wait 2×low refused 1×low`},
		{"waiting is limited", 1, "low", "+low +low wait", `
+low: run 1×low
+low: run 1×low wait 1×low
wait: run 1×low refused 1×low`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := runScript(t, newDispatcher(test.seats, strings.Split(test.levels, "; ")...), test.script)
			if strings.TrimSpace(got) != strings.TrimSpace(test.want) {
				t.Errorf("got\n%swant%s", got, test.want)
			}
		})
	}
}

// TestChangesUnderLoad replaces levels while requests come and go, and checks that every seat is free in the end.
func TestChangesUnderLoad(t *testing.T) {
	s := newDispatcher(6, "high shares=10 lend=50", "low shares=20 lend=50")
	var all, changes sync.WaitGroup
	var served atomic.Int64
	for i := range 40 {
		all.Go(func() {
			for n := range 50 {
				name := []string{"high", "low.a", "low.b", "other"}[(i+n)%4]
				release, err := s.Classify(parseRequest(name, "", "get", "/x")).Enter(t.Context(), 1+n%3)
				if err == nil {
					served.Add(1)
					runtime.Gosched()
					release()
				}
			}
		})
	}
	done := make(chan struct{})
	changes.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			levels := []string{"high shares=10 lend=50", "low shares=20 lend=50"}
			other := newDispatcher(6, levels[n%2:]...)
			s.Set(other.schemas, other.configs)
			runtime.Gosched()
		}
	})
	all.Wait()
	close(done)
	changes.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	want := 0
	for name, l := range s.levels {
		want += l.lower
		if l.isBusy() || l.deleted {
			t.Errorf("level %s still has %d seats and %d requests", name, l.running, l.waiting)
		}
	}
	if s.waiting != 0 || s.reserved != want || served.Load() == 0 {
		t.Errorf("%d wait, %d seats are reserved, want %d; %d were served", s.waiting, s.reserved, want, served.Load())
	}
}

// TestDeletedLevelsEnd checks that a deleted level keeps its requests, and is removed with the last.
func TestDeletedLevelsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDispatcher(1, "low")
		low := s.Classify(parseRequest("low", "", "get", "/x"))
		release, err := low.Enter(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan func())
		go func() {
			release, err := low.Enter(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			second <- release
		}()
		synctest.Wait()
		other := newDispatcher(1, "high")
		s.Set(other.schemas, other.configs)
		if f := s.Classify(parseRequest("low", "", "get", "/x")); f.Level != "catch-all" {
			t.Errorf("a request of the level that is gone is at %s", f.Level)
		}
		release()
		(<-second)()
		if s.levels["low"] != nil || s.levels["high"] == nil {
			t.Errorf("there are %v", slices.Collect(maps.Keys(s.levels)))
		}
	})
}

func BenchmarkEnter(b *testing.B) {
	s := New(600)
	a := parseRequest("alice", "a b system:authenticated", "create", "configmaps ns")
	b.ReportAllocs()
	for b.Loop() {
		release, err := s.Classify(a).Enter(b.Context(), 1)
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}
