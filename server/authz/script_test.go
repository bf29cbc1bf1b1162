package authz_test

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/server/authz"
	"proa.dev/server/authz/bootstrappolicy"
)

var update = flag.Bool("update", false, "write the answers into the scripts in testdata")

// TestScripts runs the scripts in testdata. A script has sections ("-- name --"): "policy" has the roles and bindings of the
// cluster, "objects" are YAML documents that the Node authorizer sees, "new" has roles and bindings to be written, and
// "script" has commands. Below each command, indented, is its output.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, script, ok := strings.Cut(string(data), "-- script --\n")
			if !ok {
				t.Fatal("no script section")
			}
			got := newScriptCluster(t, head).run(t, script)
			if got == script {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(head+"-- script --\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			wantLines, gotLines := strings.Split(script, "\n"), strings.Split(got, "\n")
			for i := range max(len(wantLines), len(gotLines)) {
				if w, g := at(wantLines, i), at(gotLines, i); w != g {
					t.Fatalf("line %d of the script:\nwant %s\ngot  %s", i+1, w, g)
				}
			}
		})
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end)"
}

// scriptCluster has the objects of a cluster that authorization reads.
type scriptCluster struct {
	*bootstrappolicy.Policy
	generation int64
	written    *bootstrappolicy.Policy

	pods      []*corev1.Pod
	claims    []*corev1.PersistentVolumeClaim
	volumes   []*corev1.PersistentVolume
	nodeNames map[string]string

	rbac  *authz.RBAC
	chain authz.Chain
	guard authz.Guard
}

func newScriptCluster(t *testing.T, head string) *scriptCluster {
	t.Helper()
	sections := map[string]string{}
	name := ""
	for line := range strings.Lines(head) {
		if title, ok := strings.CutPrefix(line, "-- "); ok {
			name = strings.TrimSuffix(title, " --\n")
			continue
		}
		sections[name] += line
	}
	parse := func(text string) *bootstrappolicy.Policy {
		p, err := bootstrappolicy.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	w := &scriptCluster{Policy: parse(sections["policy"]), written: parse(sections["new"]), nodeNames: map[string]string{}}
	for document := range strings.SplitSeq(sections["objects"], "\n---\n") {
		w.addObject(t, document)
	}
	standard, err := bootstrappolicy.Default()
	if err != nil {
		t.Fatal(err)
	}
	w.rbac = authz.NewRBAC(w)
	w.chain = authz.New(authz.NewNode(w, standard.NodeRules()), w.rbac)
	w.guard = authz.Guard{RBAC: w.rbac, Authorizer: w.chain}
	return w
}

func (w *scriptCluster) addObject(t *testing.T, document string) {
	t.Helper()
	var header struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			NodeName string `json:"nodeName"`
		} `json:"spec"`
	}
	must(t, yaml.Unmarshal([]byte(document), &header))
	switch header.Kind {
	case "":
	case "PersistentVolumeClaim":
		o := &corev1.PersistentVolumeClaim{}
		must(t, yaml.UnmarshalStrict([]byte(document), o))
		w.claims = append(w.claims, o)
	case "PersistentVolume":
		o := &corev1.PersistentVolume{}
		must(t, yaml.UnmarshalStrict([]byte(document), o))
		w.volumes = append(w.volumes, o)
	case "Pod":
		o := &corev1.Pod{}
		must(t, yaml.UnmarshalStrict([]byte(document), o))
		w.pods = append(w.pods, o)
		fallthrough
	default:
		w.nodeNames[strings.ToLower(header.Kind)+"s "+header.Namespace+"/"+header.Name] = header.Spec.NodeName
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs every command of the script and returns the script with the outputs below the commands.
func (w *scriptCluster) run(t *testing.T, script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		if line[0] == ' ' {
			continue
		}
		out.WriteString(line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		args := map[string]string{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			args[key] = value
		}
		for answer := range strings.SplitSeq(w.evaluate(t, words[0], args), "\n") {
			out.WriteString(strings.TrimRight("  "+answer, " ") + "\n")
		}
	}
	return out.String()
}

func (w *scriptCluster) evaluate(t *testing.T, command string, args map[string]string) string {
	u := &user.DefaultInfo{Name: args["user"]}
	if args["groups"] != "" {
		u.Groups = strings.Split(args["groups"], ",")
	}
	ctx := context.Background()
	switch command {
	case "ask":
		decision, reason, err := w.chain.Authorize(ctx, attributes(u, args))
		if err != nil {
			return fmt.Sprintf("%v %q error: %v", decision, reason, err)
		}
		return strings.TrimRight(fmt.Sprintf("%v %s", decision, reason), " ")
	case "forbidden":
		a := attributes(u, args)
		_, reason, _ := w.chain.Authorize(ctx, a)
		return authz.Forbidden(&a, reason).Error()
	case "list":
		return describeStatus(t, w.chain.ReviewRules(u, args["ns"]))
	case "write":
		return w.write(ctx, u, args)
	case "aggregate":
		return w.aggregate(args["clusterrole"])
	case "delete":
		return w.remove(args)
	}
	t.Fatalf("unknown command %q", command)
	return ""
}

func attributes(u user.Info, args map[string]string) authz.Attributes {
	a := authz.Attributes{
		User: u, Verb: args["verb"], Namespace: args["ns"], Group: args["group"], Version: "v1", Resource: args["resource"],
		Subresource: args["sub"], Name: args["name"], Path: args["path"], IsResource: args["resource"] != "",
	}
	a.ParseSelectors(args["fields"], args["labels"])
	return a
}

func describeStatus(t *testing.T, status authorizationv1.SubjectRulesReviewStatus) string {
	t.Helper()
	var lines []string
	for _, r := range status.ResourceRules {
		lines = append(lines, fmt.Sprintf("%q %q %q %q", r.Verbs, r.APIGroups, r.Resources, r.ResourceNames))
	}
	for _, r := range status.NonResourceRules {
		lines = append(lines, fmt.Sprintf("%q %q", r.Verbs, r.NonResourceURLs))
	}
	lines = append(lines, fmt.Sprintf("incomplete=%v error=%q", status.Incomplete, status.EvaluationError))
	if status.ResourceRules == nil || status.NonResourceRules == nil {
		t.Error("a list of the review is null")
	}
	return strings.Join(lines, "\n")
}

// write writes an object of the section "new" by its name as a user. The object of that name in "policy" is the old one.
func (w *scriptCluster) write(ctx context.Context, u user.Info, args map[string]string) string {
	grant := authz.Grant{User: u, Namespace: args["ns"], Name: args["as"]}
	err := fmt.Errorf("nothing to write")
	switch {
	case args["clusterrole"] != "":
		old, _ := w.ClusterRole(args["clusterrole"])
		for _, o := range w.written.ClusterRoles {
			if o.Name == args["clusterrole"] {
				if args["owner"] != "" {
					o = old.DeepCopy()
					o.OwnerReferences = []metav1.OwnerReference{{Name: args["owner"]}}
				}
				err = w.guard.ClusterRole(ctx, grant, o, old)
			}
		}
	case args["role"] != "":
		old, _ := w.Role(args["ns"], args["role"])
		for _, o := range w.written.Roles {
			if o.Name == args["role"] {
				err = w.guard.Role(ctx, grant, o, old)
			}
		}
	case args["clusterrolebinding"] != "":
		for _, o := range w.written.ClusterRoleBindings {
			if o.Name == args["clusterrolebinding"] {
				err = w.guard.ClusterRoleBinding(ctx, grant, o, nil)
			}
		}
	case args["rolebinding"] != "":
		for _, o := range w.written.RoleBindings {
			if o.Name == args["rolebinding"] {
				err = w.guard.RoleBinding(ctx, grant, o, nil)
			}
		}
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (w *scriptCluster) aggregate(name string) string {
	role, ok := w.ClusterRole(name)
	if !ok {
		return "not found"
	}
	rules, changed, err := authz.Aggregate(role, func(yield func(*rbacv1.ClusterRole) bool) {
		// In reverse order, because the order of roles must not matter.
		for i := len(w.ClusterRoles) - 1; i >= 0; i-- {
			if !yield(w.ClusterRoles[i]) {
				return
			}
		}
	})
	if err != nil {
		return err.Error()
	}
	lines := []string{fmt.Sprintf("changed=%v", changed)}
	for _, r := range rules {
		lines = append(lines, fmt.Sprintf("%q %q %q", r.Verbs, r.APIGroups, r.Resources))
	}
	return strings.Join(lines, "\n")
}

// remove deletes a binding, so that a script can test a revocation.
func (w *scriptCluster) remove(args map[string]string) string {
	w.generation++
	for i, b := range w.Policy.ClusterRoleBindings {
		if b.Name == args["clusterrolebinding"] {
			w.Policy.ClusterRoleBindings = append(w.Policy.ClusterRoleBindings[:i], w.Policy.ClusterRoleBindings[i+1:]...)
			return "gone"
		}
	}
	for i, b := range w.Policy.RoleBindings {
		if b.Name == args["rolebinding"] && b.Namespace == args["ns"] {
			w.Policy.RoleBindings = append(w.Policy.RoleBindings[:i], w.Policy.RoleBindings[i+1:]...)
			return "gone"
		}
	}
	return "not found"
}

func (w *scriptCluster) Generation() int64 { return w.generation }

func (w *scriptCluster) ClusterRole(name string) (*rbacv1.ClusterRole, bool) {
	for _, o := range w.ClusterRoles {
		if o.Name == name {
			return o, true
		}
	}
	return nil, false
}

func (w *scriptCluster) Role(namespace, name string) (*rbacv1.Role, bool) {
	for _, o := range w.Roles {
		if o.Namespace == namespace && o.Name == name {
			return o, true
		}
	}
	return nil, false
}

func (w *scriptCluster) ClusterRoleBindings() iter.Seq[*rbacv1.ClusterRoleBinding] {
	return func(yield func(*rbacv1.ClusterRoleBinding) bool) {
		for _, o := range w.Policy.ClusterRoleBindings {
			if !yield(o) {
				return
			}
		}
	}
}

func (w *scriptCluster) RoleBindings(namespace string) iter.Seq[*rbacv1.RoleBinding] {
	return func(yield func(*rbacv1.RoleBinding) bool) {
		for _, o := range w.Policy.RoleBindings {
			if o.Namespace == namespace && !yield(o) {
				return
			}
		}
	}
}

func (w *scriptCluster) Pods(node string) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for _, o := range w.pods {
			if o.Spec.NodeName == node && !yield(o) {
				return
			}
		}
	}
}

func (w *scriptCluster) NodeOf(resource, namespace, name string) string {
	return w.nodeNames[resource+" "+namespace+"/"+name]
}

func (w *scriptCluster) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	for _, o := range w.claims {
		if o.Namespace == namespace && o.Name == name {
			return o, true
		}
	}
	return nil, false
}

func (w *scriptCluster) Volume(name string) (*corev1.PersistentVolume, bool) {
	for _, o := range w.volumes {
		if o.Name == name {
			return o, true
		}
	}
	return nil, false
}
