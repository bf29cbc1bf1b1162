package run

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proa.dev/kinds/kind"
	"proa.dev/run/admissionplugins"
	"proa.dev/run/settings"
	"proa.dev/server/policyadmission"
)

func names(plugins []kind.Plugin) string {
	var out []string
	for _, p := range plugins {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

// TestPlugins checks which plugins are enabled by default, and their order.
func TestPlugins(t *testing.T) {
	c, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	mutating, checking, err := c.Admission.Enabled(nil, (&Server{}).dynamicPlugins(policyadmission.NewMetrics()))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(mutating), "NamespaceLifecycle LimitRanger ServiceAccount NodeRestriction TaintNodesByCondition Priority DefaultTolerationSeconds "+
		"DefaultStorageClass StorageObjectInUseProtection RuntimeClass DefaultIngressClass PodTopologyLabels MutatingAdmissionPolicy MutatingAdmissionWebhook"; got != want {
		t.Errorf("hop 4 has\n%s\nwant\n%s", got, want)
	}
	if got, want := names(checking), "LimitRanger ServiceAccount PodSecurity Priority PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning "+
		"ClusterTrustBundleAttest CertificateSubjectRestriction RestrictedEndpoints NodeDeclaredFeatureValidator PodResizeValidator ValidatingAdmissionPolicy ValidatingAdmissionWebhook ResourceQuota"; got != want {
		t.Errorf("hop 6 has\n%s\nwant\n%s", got, want)
	}
}

// TestPluginSwitches enables and disables plugins with flags and with a file.
func TestPluginSwitches(t *testing.T) {
	path := filepath.Join(t.TempDir(), "proa.yaml")
	file := "enable-admission-plugins: [AlwaysPullImages, DenyServiceExternalIPs]\ndisable-admission-plugins: ResourceQuota,LimitRanger\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, settings.Values{"disable-admission-plugins": {"PodSecurity,EventRateLimit", "NodeRestriction"}})
	if err != nil {
		t.Fatal(err)
	}
	mutating, checking, err := c.Admission.Enabled(nil, (&Server{}).dynamicPlugins(policyadmission.NewMetrics()))
	if err != nil {
		t.Fatal(err)
	}
	on := func(plugins []kind.Plugin, name string) bool {
		return slices.ContainsFunc(plugins, func(p kind.Plugin) bool { return p.Name == name })
	}
	for _, name := range []string{"AlwaysPullImages", "LimitRanger"} {
		if !on(mutating, name) || !on(checking, name) {
			t.Errorf("%s is off", name)
		}
	}
	if !on(checking, "DenyServiceExternalIPs") || on(checking, "PodSecurity") || on(mutating, "NodeRestriction") {
		t.Errorf("got %s and %s", names(mutating), names(checking))
	}
}

// TestPluginOrder checks that enabled plugins run in the order of admissionplugins.Order, and that each plugin of that list exists
// or is listed as absent.
func TestPluginOrder(t *testing.T) {
	a := admissionplugins.Config{Enable: admissionplugins.Order()}
	mutating, checking, err := a.Enabled(nil, (&Server{}).dynamicPlugins(policyadmission.NewMetrics()))
	if err != nil {
		t.Fatal(err)
	}
	for _, hop := range [][]kind.Plugin{mutating, checking} {
		last := -1
		for _, p := range hop {
			at := slices.Index(admissionplugins.Order(), p.Name)
			if at <= last {
				t.Errorf("%s is at %d, after %d", p.Name, at, last)
			}
			last = at
		}
	}
	for _, name := range admissionplugins.Order() {
		_, absent := admissionplugins.Absent()[name]
		is := func(p kind.Plugin) bool { return p.Name == name }
		if there := slices.ContainsFunc(mutating, is) || slices.ContainsFunc(checking, is); there == absent && name != "AlwaysAdmit" {
			t.Errorf("%s: there %t, listed as absent %t", name, there, absent)
		}
	}
}
