// Package admissionplugins knows the admission plugins by name: their order, which are enabled, and how a file
// configures them.
package admissionplugins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
	"proa.dev/server/coreadmission"
	"proa.dev/server/mutate"
	"proa.dev/server/validate"
)

// Config says which admission plugins are enabled, and how they are configured.
type Config struct {
	// Enable and Disable are names of plugins.
	Enable, Disable []string
	// Plugins has the configuration of each plugin by its name.
	Plugins map[string][]byte
}

// Order returns the names of all plugins in the order in which they run. It is upstream's, with RestrictedEndpoints
// added: a plugin sees what those before it have changed, and those that count objects come last.
func Order() []string {
	return []string{
		"AlwaysAdmit", "NamespaceAutoProvision", "NamespaceLifecycle", "NamespaceExists", "LimitPodHardAntiAffinityTopology",
		"LimitRanger", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition", "AlwaysPullImages", "ImagePolicyWebhook",
		"PodSecurity", "PodNodeSelector", "Priority", "DefaultTolerationSeconds", "PodTolerationRestriction", "EventRateLimit",
		"ExtendedResourceToleration", "DefaultStorageClass", "StorageObjectInUseProtection", "PodGroupProtection",
		"OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval",
		"CertificateSigning", "ClusterTrustBundleAttest", "CertificateSubjectRestriction", "DefaultIngressClass",
		"DenyServiceExternalIPs", "RestrictedEndpoints", "PodTopologyLabels", "NodeDeclaredFeatureValidator", "PodResizeValidator",
		"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
		"ResourceQuota", "AlwaysDeny",
	}
}

// Absent returns upstream's plugins that proa does not have, with the reason. Disabling one is not a mistake.
func Absent() map[string]string {
	return map[string]string{
		"NamespaceAutoProvision": "proa does not have it; create the namespace first",
		"ImagePolicyWebhook":     "proa does not have it",
		"PodGroupProtection":     "proa does not have it; PodGroups can be deleted while Pods name them",
	}
}

// ParseNames checks the names of plugins.
func ParseNames(names []string, enable bool) ([]string, error) {
	for _, name := range names {
		if !slices.Contains(Order(), name) {
			return nil, fmt.Errorf("there is no admission plugin %q; there are %s", name, strings.Join(Order(), ", "))
		}
		if why, absent := Absent()[name]; enable && absent {
			return nil, fmt.Errorf("the admission plugin %q cannot be switched on: %s", name, why)
		}
	}
	return names, nil
}

// Validate refuses plugins that are both enabled and disabled, and invalid configurations.
func (a *Config) Validate() error {
	for _, name := range a.Enable {
		if slices.Contains(a.Disable, name) {
			return fmt.Errorf("%s is in enable-admission-plugins and in disable-admission-plugins; say one of them", name)
		}
	}
	if slices.Contains(a.Enable, "EventRateLimit") && len(a.Plugins["EventRateLimit"]) == 0 {
		return errors.New("EventRateLimit is on and has no limits; they stand in the file of admission-control-config-file")
	}
	_, _, err := a.Enabled(nil, Dynamic{})
	return err
}

// Dynamic are the plugins that objects of the cluster configure.
type Dynamic struct{ Mutating, Checking []kind.Plugin }

// Enabled returns the enabled plugins of hops 4 and 6 in their order. The addresses of nodes are checked against facts.
func (a *Config) Enabled(facts mutate.NodeFacts, dynamic Dynamic) (mutating, checking []kind.Plugin, err error) {
	if mutating, err = mutate.Plugins(a.Plugins, facts); err != nil {
		return nil, nil, err
	}
	if checking, err = validate.Plugins(a.Plugins); err != nil {
		return nil, nil, err
	}
	mutating, checking = append(mutating, dynamic.Mutating...), append(checking, dynamic.Checking...)
	return a.choose(append(mutating, coreadmission.NamespaceLifecycle())), a.choose(checking), nil
}

// choose returns the enabled ones of some plugins, in their order.
func (a *Config) choose(plugins []kind.Plugin) []kind.Plugin {
	off := func(p kind.Plugin) bool {
		return slices.Contains(a.Disable, p.Name) || p.DisabledByDefault && !slices.Contains(a.Enable, p.Name)
	}
	on, order := slices.DeleteFunc(slices.Clone(plugins), off), Order()
	slices.SortStableFunc(on, func(x, y kind.Plugin) int { return slices.Index(order, x.Name) - slices.Index(order, y.Name) })
	return on
}

// ReadConfig reads an AdmissionConfiguration: the configuration of plugins, in the file itself or in files that it
// names.
func ReadConfig(path string) (map[string][]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c struct {
		metav1.TypeMeta `json:",inline"`
		Plugins         []struct {
			Name          string                `json:"name"`
			Path          string                `json:"path"`
			Configuration *runtime.RawExtension `json:"configuration"`
		} `json:"plugins"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.APIVersion != "apiserver.config.k8s.io/v1" || c.Kind != "AdmissionConfiguration" {
		return nil, fmt.Errorf("%s is not an AdmissionConfiguration of apiserver.config.k8s.io/v1", path)
	}
	out := map[string][]byte{}
	for _, p := range c.Plugins {
		if _, err := ParseNames([]string{p.Name}, true); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if _, twice := out[p.Name]; twice {
			return nil, fmt.Errorf("%s: %s is configured twice", path, p.Name)
		}
		switch {
		case p.Configuration != nil:
			out[p.Name] = p.Configuration.Raw
		case p.Path != "":
			beside := p.Path
			if !filepath.IsAbs(beside) {
				beside = filepath.Join(filepath.Dir(path), beside)
			}
			if out[p.Name], err = os.ReadFile(beside); err != nil {
				return nil, fmt.Errorf("%s: the configuration of %s: %w", path, p.Name, err)
			}
		}
	}
	return out, nil
}
