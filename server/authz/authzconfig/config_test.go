package authzconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

func TestParse(t *testing.T) {
	hook := filepath.Join(t.TempDir(), "hook.yaml")
	if err := os.WriteFile(hook, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	webhook := "- {type: Webhook, name: %s, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, unauthorizedTTL: 1s," +
		" matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{expression: \"%s\"}], connectionInfo: {type: %s, kubeConfigFile: " + hook + "}}}\n"
	good := head + "- {type: Node, name: node}\n" + fmt.Sprintf(webhook, "first", "request.user != 'bob'", "KubeConfigFile") +
		fmt.Sprintf(webhook, "second", "true", "KubeConfigFile") + "- {type: RBAC, name: rbac}\n"
	steps, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		got = append(got, fmt.Sprintf("%s/%s %s %v %v %v %t", s.Type, s.Name, s.Version, s.Timeout, s.AllowedTTL, s.DeniedTTL, s.Deny))
	}
	want := "Node/node  0s 0s 0s false; Webhook/first v1 3s 5m0s 1s true; Webhook/second v1 3s 5m0s 1s true; RBAC/rbac  0s 0s 0s false"
	if s := strings.Join(got, "; "); s != want || steps[1].Kubeconfig != hook {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	for user, want := range map[string]bool{"ann": true, "bob": false} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user}}
		if got, err := steps[1].Match(t.Context(), review); got != want || err != nil {
			t.Errorf("%s matches: %t, %v", user, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                                       "empty config data",
		head + "  []\n":                          "at least one authorization mode must be defined",
		head + "- {type: ABAC, name: x}\n":       `authorizers[0].type: Unsupported value: "ABAC"`,
		head + "- {type: RBAC}\n":                "authorizers[0].name: Required value",
		head + "- {type: RBAC, name: a, x: 1}\n": `unknown field "authorizers[0].x"`,
		head + "- {type: RBAC, name: a}\n- {type: RBAC, name: b}\n": `authorizers[1].type: Duplicate value: "RBAC"`,
		head + fmt.Sprintf(webhook, "a", "request.",
			"KubeConfigFile"): "compilation failed",
		head + strings.Replace(fmt.Sprintf(webhook, "a", "true", "InClusterConfig"), ", kubeConfigFile: "+hook, "",
			1): "give a kubeConfigFile",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}

func TestFromModes(t *testing.T) {
	for _, test := range []struct{ modes, hook, want string }{
		{"Node RBAC", "", "Node/node RBAC/rbac"},
		{"RBAC Webhook", "/x", "RBAC/rbac Webhook/default"},
		{"AlwaysAllow", "", "AlwaysAllow/alwaysallow"},
		{"", "", "at least one authorization-mode must be passed"},
		{"RBAC RBAC", "", `authorization-mode ["RBAC" "RBAC"] has mode specified more than once`},
		{"ABAC", "", "authorization-mode ABAC is not supported"},
		{"Nothing", "", `authorization-mode "Nothing" is not a valid mode`},
		{"Webhook", "", "authorization-mode Webhook's authorization config file not passed"},
		{"RBAC", "/x", "cannot specify --authorization-webhook-config-file without mode Webhook"},
	} {
		steps, err := FromModes(strings.Fields(test.modes), Step{Kubeconfig: test.hook})
		var got []string
		for _, s := range steps {
			got = append(got, s.Type+"/"+s.Name)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if s := strings.Join(got, " "); !strings.HasPrefix(s, test.want) {
			t.Errorf("%s: got %s, want %s", test.modes, s, test.want)
		}
	}
}
