package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/run/settings"
)

// TestInvalidPluginSettings checks the errors for invalid settings of admission plugins.
func TestInvalidPluginSettings(t *testing.T) {
	for flags, want := range map[string]string{
		"enable-admission-plugins=PodSecurityPolicy":                               `--enable-admission-plugins: there is no admission plugin "PodSecurityPolicy"; there are AlwaysAdmit, `,
		"disable-admission-plugins=resourcequota":                                  `--disable-admission-plugins: there is no admission plugin "resourcequota"; there are `,
		"enable-admission-plugins=ImagePolicyWebhook":                              `--enable-admission-plugins: the admission plugin "ImagePolicyWebhook" cannot be switched on: proa does not have it`,
		"enable-admission-plugins=EventRateLimit":                                  `EventRateLimit is on and has no limits; they stand in the file of admission-control-config-file`,
		"enable-admission-plugins=AlwaysDeny disable-admission-plugins=AlwaysDeny": `AlwaysDeny is in enable-admission-plugins and in disable-admission-plugins; say one of them`,
		"admission-control-config-file=/no/such/file":                              `--admission-control-config-file: open /no/such/file: no such file`,
	} {
		given := settings.Values{}
		for _, flag := range strings.Fields(flags) {
			name, value, _ := strings.Cut(flag, "=")
			given[name] = []string{value}
		}
		if _, err := Load("", given); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s…", flags, err, want)
		}
	}
}

// TestPluginConfig reads the configuration of plugins from one file, and from a second one that the first names.
func TestPluginConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("standards.yaml", "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults: {enforce: baseline}\nexemptions: {namespaces: [kube-system]}\n")
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	quota := "- {name: ResourceQuota, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{resource: pods, matchContains: [cpu]}]}}\n"
	for _, c := range []struct{ title, text, want string }{
		{"good", head + quota + "- {name: PodSecurity, path: standards.yaml}\n", ""},
		{"no config", "kind: Pod\n", "is not an AdmissionConfiguration of apiserver.config.k8s.io/v1"},
		{"a field that is not", head + "- {name: PodSecurity, file: x}\n", `unknown field "file"`},
		{"no such plugin", head + "- {name: Nothing}\n", `there is no admission plugin "Nothing"`},
		{"twice", head + quota + quota, "ResourceQuota is configured twice"},
		{"no such file", head + "- {name: PodSecurity, path: none.yaml}\n",
			"the configuration of PodSecurity: open " + filepath.Join(dir, "none.yaml")},
		{"of another plugin", head + strings.Replace(quota, "name: ResourceQuota", "name: PodSecurity", 1), `the configuration of PodSecurity: error unmarshaling JSON: while decoding JSON: json: unknown field "limitedResources"`},
		{"no such level", head + "- {name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {warn: strict}}}\n",
			`the configuration of PodSecurity: defaults.warn: "strict" must be one of privileged, baseline, restricted`},
		{"no such namespace", head + "- {name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, exemptions: {namespaces: [A]}}}\n",
			`the configuration of PodSecurity: exemptions.namespaces[0]: "A" a lowercase RFC 1123 label`},
	} {
		t.Run(c.title, func(t *testing.T) {
			config, err := Load("", settings.Values{"admission-control-config-file": {write("admission.yaml", c.text)}})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && len(config.Admission.Plugins) != 2:
				t.Errorf("got %q", config.Admission.Plugins)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got error %v, want %s", err, c.want)
			}
		})
	}
}
