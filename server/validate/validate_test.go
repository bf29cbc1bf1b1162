package validate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/server/admissionlib"
	"proa.dev/server/admittest"
)

func TestScripts(t *testing.T) { admittest.Run(t, Plugins) }

// FuzzRequest parses arbitrary certificate requests, which come from clients.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := admissionlib.ParseCertificateRequest(text); (r == nil) == (err == nil) {
			t.Errorf("got %v, %v", r, err)
		}
	})
}

// BenchmarkUnrelatedWrite measures the plugins for a write that concerns none of them.
func BenchmarkUnrelatedWrite(b *testing.B) {
	a := &kind.Admission{Verb: "update", Def: core.ConfigMaps(), User: &user.DefaultInfo{Name: "bob"}, Object: &corev1.ConfigMap{},
		Old: &corev1.ConfigMap{}}
	plugins, err := Plugins(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range plugins {
			if p.DisabledByDefault {
				continue
			}
			if err := p.Admit(b.Context(), a); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// FuzzConfig parses arbitrary configurations of plugins: each is accepted or rejected.
func FuzzConfig(f *testing.F) {
	f.Add([]byte("apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults: {enforce: baseline, enforce-version: v1.30}\nexemptions: {namespaces: [a]}\n"))
	f.Add([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\nlimitedResources:\n- resource: pods\n  matchContains: [requests.cpu]\n"))
	f.Add([]byte("limitedResources: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := readPodSecurity(text); err == nil &&
			(c.defaults.Enforce.Level == "" || c.defaults.Audit.Level == "" || c.defaults.Warn.Level == "") {
			t.Errorf("accepted with %+v", c.defaults)
		}
		_, _ = readQuota(text)
	})
}
