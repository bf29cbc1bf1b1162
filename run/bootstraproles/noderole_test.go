package bootstraproles

import (
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

// TestNodeRoleManifest checks that the manifest for other API servers is the role that nodes have here, and that the
// guide names the command that grants it.
func TestNodeRoleManifest(t *testing.T) {
	text, err := NodeRoleManifest()
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "---\n")
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	if err := yaml.UnmarshalStrict([]byte(first), &role); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(second), &binding); err != nil {
		t.Fatal(err)
	}
	for _, r := range ControllerRoles(nil) {
		if r.Name == role.Name && !equality.Semantic.DeepEqual(r.Rules, role.Rules) {
			t.Errorf("other rules than here: %v", role.Rules)
		}
	}
	for _, b := range ControllerBindings(nil) {
		if b.Name == binding.Name && (!equality.Semantic.DeepEqual(b.Subjects, binding.Subjects) || b.RoleRef != binding.RoleRef) {
			t.Errorf("another binding than here: %v", binding)
		}
	}
	if len(role.Rules) == 0 || len(binding.Subjects) != 1 || binding.Subjects[0].Name != "system:nodes" {
		t.Errorf("%s", text)
	}
	guide, err := os.ReadFile("../../docs/guide/nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), GrantNodeRole) {
		t.Errorf("docs/guide/nodes.md does not say %q", GrantNodeRole)
	}
}
