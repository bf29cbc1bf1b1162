package authzconfig_test

import (
	"testing"

	"proa.dev/server/authz/authzconfig"
)

// FuzzParse checks that a file is either rejected or configures authorizers.
func FuzzParse(f *testing.F) {
	f.Add([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n"))
	f.Add([]byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthorizationConfiguration","authorizers":[{"type":"Webhook","name":"w","webhook":{"timeout":"1s"}}]}`))
	f.Add([]byte("authorizers: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		steps, err := authzconfig.Parse(text)
		if err == nil && len(steps) == 0 {
			t.Errorf("accepted without an authorizer: %s", text)
		}
	})
}
