package run

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
	"proa.dev/server"
	"proa.dev/server/mutate"
	"proa.dev/server/validate"
)

// Admission is what can be said about admission plugins.
type Admission struct {
	// Enable and Disable are names of plugins.
	Enable, Disable []string
	// Plugins has the configuration of each plugin by its name.
	Plugins map[string][]byte
}

// pluginOrder are the names of all plugins in the order in which they run. It is upstream's, with RestrictedEndpoints added:
// what one adds the next one sees, and what counts comes last.
func pluginOrder() []string {
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

// absentPlugins are those of upstream that proa does not have, with the reason. To switch one off is no mistake.
func absentPlugins() map[string]string {
	return map[string]string{
		"NamespaceAutoProvision": "proa does not have it; create the namespace first",
		"ImagePolicyWebhook":     "proa does not have it",
		"PodGroupProtection":     "proa does not have it; PodGroups can be deleted while Pods name them",
	}
}

// parsePlugins checks names of plugins.
func parsePlugins(names []string, enable bool) ([]string, error) {
	for _, name := range names {
		if !slices.Contains(pluginOrder(), name) {
			return nil, fmt.Errorf("there is no admission plugin %q; there are %s", name, strings.Join(pluginOrder(), ", "))
		}
		if why, absent := absentPlugins()[name]; enable && absent {
			return nil, fmt.Errorf("the admission plugin %q cannot be switched on: %s", name, why)
		}
	}
	return names, nil
}

// validate finds plugins that are switched on and off, and configurations that cannot be read.
func (a *Admission) validate() error {
	for _, name := range a.Enable {
		if slices.Contains(a.Disable, name) {
			return fmt.Errorf("%s is in enable-admission-plugins and in disable-admission-plugins; say one of them", name)
		}
	}
	if slices.Contains(a.Enable, "EventRateLimit") && len(a.Plugins["EventRateLimit"]) == 0 {
		return errors.New("EventRateLimit is on and has no limits; they stand in the file of admission-control-config-file")
	}
	_, _, err := a.steps(nil, dynamicPlugins{})
	return err
}

// dynamicPlugins are the plugins that objects of the cluster configure.
type dynamicPlugins struct{ mutating, checking []kind.Plugin }

// steps are the plugins of hops 4 and 6 that are on. The addresses of nodes are checked against facts.
func (a *Admission) steps(facts mutate.NodeFacts, dynamic dynamicPlugins) (mutating, checking []kind.Plugin, err error) {
	if mutating, err = mutate.Plugins(a.Plugins, facts); err != nil {
		return nil, nil, err
	}
	if checking, err = validate.Plugins(a.Plugins); err != nil {
		return nil, nil, err
	}
	mutating, checking = append(mutating, dynamic.mutating...), append(checking, dynamic.checking...)
	return a.choose(append(mutating, server.NamespaceLifecycle())), a.choose(checking), nil
}

// choose keeps the plugins that are on, in their order.
func (a *Admission) choose(plugins []kind.Plugin) []kind.Plugin {
	off := func(p kind.Plugin) bool {
		return slices.Contains(a.Disable, p.Name) || p.Off && !slices.Contains(a.Enable, p.Name)
	}
	on, order := slices.DeleteFunc(slices.Clone(plugins), off), pluginOrder()
	slices.SortStableFunc(on, func(x, y kind.Plugin) int { return slices.Index(order, x.Name) - slices.Index(order, y.Name) })
	return on
}

// readAdmissionConfig reads the file that upstream calls the admission control config: the configuration of plugins, in it
// or in files beside it.
func readAdmissionConfig(path string) (map[string][]byte, error) {
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
		if _, err := parsePlugins([]string{p.Name}, true); err != nil {
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
