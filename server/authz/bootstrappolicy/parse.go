package bootstrappolicy

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Parse reads a policy in the format that the head of policy.txt explains. Words are separated by blanks, lines that
// begin with # are comments. The objects have nothing but what is written.
func Parse(text string) (*Policy, error) {
	p := parser{policy: &Policy{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		statement := p.begin
		if line[0] == ' ' || line[0] == '\t' {
			statement = p.part
		}
		if err := statement(words); err != nil {
			return nil, fmt.Errorf("policy line %d: %w", number, err)
		}
	}
	return p.policy, nil
}

// parser holds the role that indented lines belong to; at most one of the two is set.
type parser struct {
	policy      *Policy
	clusterRole *rbacv1.ClusterRole
	role        *rbacv1.Role
}

// begin reads a line that is not indented.
func (p *parser) begin(words []string) error {
	p.clusterRole, p.role = nil, nil
	keyword, rest := words[0], words[1:]
	switch {
	case keyword == "clusterrole" && len(rest) == 1:
		p.clusterRole = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: rest[0]}}
		p.policy.ClusterRoles = append(p.policy.ClusterRoles, p.clusterRole)
	case keyword == "role" && len(rest) == 2:
		p.role = &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: rest[0], Name: rest[1]}}
		p.policy.Roles = append(p.policy.Roles, p.role)
	case keyword == "clusterrolebinding" && len(rest) >= 2:
		return p.bind("", rest[0], rest[1], rest[2:])
	case keyword == "rolebinding" && len(rest) >= 3:
		return p.bind(rest[0], rest[1], rest[2], rest[3:])
	default:
		return fmt.Errorf("cannot read %q", strings.Join(words, " "))
	}
	return nil
}

// part reads an indented line.
func (p *parser) part(words []string) error {
	switch {
	case p.clusterRole != nil && len(words) == 2 && words[0] == "label":
		p.clusterRole.Labels = merge(p.clusterRole.Labels, map[string]string{words[1]: "true"})
		return nil
	case p.clusterRole != nil && len(words) == 2 && words[0] == "aggregate":
		if p.clusterRole.AggregationRule == nil {
			p.clusterRole.AggregationRule = &rbacv1.AggregationRule{}
		}
		rule := p.clusterRole.AggregationRule
		rule.ClusterRoleSelectors = append(rule.ClusterRoleSelectors,
			metav1.LabelSelector{MatchLabels: map[string]string{words[1]: "true"}})
		return nil
	case words[0] == "bound":
		return p.bound(words[1:])
	}
	rule, err := parseRule(words)
	if err != nil {
		return err
	}
	switch {
	case p.clusterRole != nil:
		p.clusterRole.Rules = append(p.clusterRole.Rules, rule)
	case p.role != nil:
		p.role.Rules = append(p.role.Rules, rule)
	default:
		return fmt.Errorf("%q belongs to no role", strings.Join(words, " "))
	}
	return nil
}

// bound reads the binding of the role above.
func (p *parser) bound(words []string) error {
	var namespace, role, ref string
	switch {
	case p.clusterRole != nil:
		role, ref = p.clusterRole.Name, "ClusterRole/"+p.clusterRole.Name
	case p.role != nil:
		namespace, role, ref = p.role.Namespace, p.role.Name, "Role/"+p.role.Name
	default:
		return fmt.Errorf("a binding belongs to no role")
	}
	name := role
	if len(words) >= 2 && words[0] == "as" {
		name, words = words[1], words[2:]
	}
	return p.bind(namespace, name, ref, words)
}

// bind adds a RoleBinding, or without a namespace a ClusterRoleBinding.
func (p *parser) bind(namespace, name, ref string, words []string) error {
	kind, role, ok := strings.Cut(ref, "/")
	if !ok {
		return fmt.Errorf("%q is no KIND/ROLE", ref)
	}
	roleRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}
	var subjects []rbacv1.Subject
	for _, word := range words {
		subject, err := parseSubject(word)
		if err != nil {
			return err
		}
		subjects = append(subjects, subject)
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if namespace == "" {
		p.policy.ClusterRoleBindings = append(p.policy.ClusterRoleBindings,
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: roleRef, Subjects: subjects})
		return nil
	}
	p.policy.RoleBindings = append(p.policy.RoleBindings,
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: roleRef, Subjects: subjects})
	return nil
}

func parseSubject(word string) (rbacv1.Subject, error) {
	kind, name, ok := strings.Cut(word, ":")
	switch {
	case ok && kind == "user":
		return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}, nil
	case ok && kind == "group":
		return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}, nil
	case ok && kind == "sa":
		if namespace, account, ok := strings.Cut(name, "/"); ok {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}, nil
		}
	}
	return rbacv1.Subject{}, fmt.Errorf("%q is no subject", word)
}

func parseRule(words []string) (rbacv1.PolicyRule, error) {
	if len(words) < 3 || len(words) > 4 {
		return rbacv1.PolicyRule{}, fmt.Errorf("%q is no rule", strings.Join(words, " "))
	}
	rule := rbacv1.PolicyRule{Verbs: strings.Split(words[0], ",")}
	if words[1] == "url" {
		if len(words) > 3 {
			return rule, fmt.Errorf("%q is too much for a rule about paths", words[3])
		}
		rule.NonResourceURLs = strings.Split(words[2], ",")
		return rule, nil
	}
	rule.APIGroups = strings.Split(words[1], ",")
	for i, group := range rule.APIGroups {
		if group == "core" {
			rule.APIGroups[i] = ""
		}
	}
	rule.Resources = strings.Split(words[2], ",")
	if len(words) == 4 {
		rule.ResourceNames = strings.Split(words[3], ",")
	}
	return rule, nil
}
