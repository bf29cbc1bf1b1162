package bootstraproles

import (
	"bytes"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"
)

// GrantNodeRole is the command that gives nodes the role of NodeRoleManifest.
const GrantNodeRole = "proa agent --print-role | kubectl apply -f -"

// NodeRoleManifest returns the permissions that an agent of proa needs on another API server beside those of every
// node, as YAML: a ClusterRole, and a binding to the group of nodes. A server of proa has both.
func NodeRoleManifest() ([]byte, error) {
	role := rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: networkRole}, Rules: nodeNetworkRules(),
	}
	binding := rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: networkRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: networkRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: user.NodesGroup}},
	}
	first, err := yaml.Marshal(role)
	if err != nil {
		return nil, fmt.Errorf("write the role of nodes: %w", err)
	}
	second, err := yaml.Marshal(binding)
	if err != nil {
		return nil, fmt.Errorf("write the role of nodes: %w", err)
	}
	return bytes.Join([][]byte{first, second}, []byte("---\n")), nil
}

// NodeRoleGrants tells whether the role of nodes allows a verb for a resource, for all of its objects or for some.
func NodeRoleGrants(verb string, on schema.GroupResource) bool {
	return slices.ContainsFunc(nodeNetworkRules(), func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, on.Group) && slices.Contains(r.Resources, on.Resource)
	})
}
