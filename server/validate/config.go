package validate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	psa "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/lib/quotausage"
)

// podSecurityConfig is the configuration of the plugin, in upstream's format.
type podSecurityConfig struct {
	metav1.TypeMeta `json:",inline"`

	Defaults struct {
		Enforce        string `json:"enforce"`
		EnforceVersion string `json:"enforce-version"`
		Audit          string `json:"audit"`
		AuditVersion   string `json:"audit-version"`
		Warn           string `json:"warn"`
		WarnVersion    string `json:"warn-version"`
	} `json:"defaults"`
	Exemptions struct {
		Usernames      []string `json:"usernames"`
		Namespaces     []string `json:"namespaces"`
		RuntimeClasses []string `json:"runtimeClasses"`
	} `json:"exemptions"`

	defaults psa.Policy // Defaults, parsed
}

// readPodSecurity reads the configuration; without one everything is privileged.
func readPodSecurity(text []byte) (c podSecurityConfig, err error) {
	if len(text) > 0 {
		if err := yaml.UnmarshalStrict(text, &c); err != nil {
			return c, err
		}
		group, _, _ := strings.Cut(c.APIVersion, "/")
		if group != "pod-security.admission.config.k8s.io" || c.Kind != "PodSecurityConfiguration" {
			return c, fmt.Errorf("%s %s is not a PodSecurityConfiguration of pod-security.admission.config.k8s.io/v1", c.APIVersion, c.Kind)
		}
	}
	d := &c.Defaults
	for _, mode := range []struct {
		name, level, version string
		to                   *psa.LevelVersion
	}{
		{"enforce", d.Enforce, d.EnforceVersion, &c.defaults.Enforce},
		{"audit", d.Audit, d.AuditVersion, &c.defaults.Audit},
		{"warn", d.Warn, d.WarnVersion, &c.defaults.Warn},
	} {
		if mode.to.Level, err = psa.ParseLevel(cmp.Or(mode.level, string(psa.LevelPrivileged))); err != nil {
			return c, fmt.Errorf("defaults.%s: %q %w", mode.name, mode.level, err)
		}
		if mode.to.Version, err = psa.ParseVersion(cmp.Or(mode.version, psa.VersionLatest)); err != nil {
			return c, fmt.Errorf("defaults.%s-version: %q %w", mode.name, mode.version, err)
		}
	}
	return c, c.checkExemptions()
}

func (c *podSecurityConfig) checkExemptions() error {
	anything := func(name string, _ bool) []string {
		if name == "" {
			return []string{"must not be empty"}
		}
		return nil
	}
	for _, list := range []struct {
		name  string
		names []string
		check func(string, bool) []string
	}{
		{"usernames", c.Exemptions.Usernames, anything},
		{"namespaces", c.Exemptions.Namespaces, validation.ValidateNamespaceName},
		{"runtimeClasses", c.Exemptions.RuntimeClasses, validation.NameIsDNSSubdomain},
	} {
		for i, name := range list.names {
			if problems := list.check(name, false); len(problems) > 0 {
				return fmt.Errorf("exemptions.%s[%d]: %q %s", list.name, i, name, strings.Join(problems, ", "))
			}
			if slices.Contains(list.names[:i], name) {
				return fmt.Errorf("exemptions.%s[%d]: %q is there twice", list.name, i, name)
			}
		}
	}
	return nil
}

// readQuota reads the configuration of ResourceQuota: which resources may be used only where a quota limits them.
func readQuota(text []byte) ([]quotausage.Limited, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var c struct {
		metav1.TypeMeta  `json:",inline"`
		LimitedResources []struct {
			APIGroup      string                                     `json:"apiGroup"`
			Resource      string                                     `json:"resource"`
			MatchContains []string                                   `json:"matchContains"`
			MatchScopes   []corev1.ScopedResourceSelectorRequirement `json:"matchScopes"`
		} `json:"limitedResources"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	if c.Kind != "ResourceQuotaConfiguration" && c.Kind != "Configuration" {
		return nil, fmt.Errorf("%s %s is not a ResourceQuotaConfiguration of apiserver.config.k8s.io/v1", c.APIVersion, c.Kind)
	}
	var out []quotausage.Limited
	for i, l := range c.LimitedResources {
		if l.Resource == "" {
			return nil, fmt.Errorf("limitedResources[%d].resource is missing", i)
		}
		out = append(out, quotausage.Limited{
			Resource: schema.GroupResource{Group: l.APIGroup, Resource: l.Resource}, Contains: l.MatchContains, Scopes: l.MatchScopes,
		})
	}
	return out, nil
}
