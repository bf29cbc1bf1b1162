package image

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// FuzzProviders checks that configurations of credential provider plugins are parsed or rejected.
func FuzzProviders(f *testing.F) {
	f.Add([]byte(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: a
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.example:5000/x"]
  defaultCacheDuration: 1m
  tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}
`), "reg.example:5000/x/y")
	f.Fuzz(func(_ *testing.T, text []byte, image string) {
		list, err := parseProviders(text)
		if err != nil || len(checkProviders(list)) > 0 {
			return
		}
		for _, p := range list {
			for _, m := range p.MatchImages {
				matches(m, image)
			}
		}
	})
}

// FuzzLogins checks that arbitrary logins of a Secret or a file are parsed or rejected.
func FuzzLogins(f *testing.F) {
	f.Add([]byte(`{"auths":{"https://reg.example/v2/":{"auth":"YTpi"},"*.example:5000":{"username":"a","password":"b"}}}`), "reg.example/x")
	f.Add([]byte(`{"reg.example":{"auth":"YTpi=="},"%zz":{}}`), "docker.io/library/x")
	f.Fuzz(func(t *testing.T, text []byte, repository string) {
		var k loginIndex
		_ = k.addFile(text)
		_ = k.addSecret(&corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: text}})
		_ = k.addSecret(&corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: text}})
		if len(k.find(repository)) > 0 && len(k.logins) == 0 {
			t.Error("a login was found in an empty index")
		}
	})
}
