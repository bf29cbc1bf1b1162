package envtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kettles is a definition with a conversion webhook in the cluster, as controller-gen and kustomize write it, and a webhook configuration.
const kettles = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kettles.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Kettle, listKind: KettleList, plural: kettles, singular: kettle}
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: system, name: webhook-service, path: /convert}}}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: kettles}
webhooks:
- name: kettle.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {namespace: system, name: webhook-service, path: /validate-kettle}}
  rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [kettles]}]
`

// kettle is a version of a kind; kettleHub and kettleSpoke are versions that are converted.
type kettle struct{ corev1.ConfigMap }

func (k *kettle) DeepCopyObject() runtime.Object { return &kettle{*k.DeepCopy()} }

type kettleHub struct{ kettle }

func (*kettleHub) Hub() {}

type kettleSpoke struct{ kettle }

func (*kettleSpoke) ConvertTo(hub) error   { return nil }
func (*kettleSpoke) ConvertFrom(hub) error { return nil }

func TestEnvironment(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kettles.yaml"), []byte(kettles), 0o600); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Kettle"}, &kettleHub{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Kettle"}, &kettleSpoke{})
	env := &Environment{Scheme: scheme, CRDDirectoryPaths: []string{dir}, ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: WebhookInstallOptions{Paths: []string{dir}}}
	env.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", "LimitRanger").Set("service-cluster-ip-range",
		"10.9.0.0/24")
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	}()

	// The definition uses the local address for conversion, and so does the webhook.
	local := fmt.Sprintf("127.0.0.1:%d", env.WebhookInstallOptions.LocalServingPort)
	var crd apiextensionsv1.CustomResourceDefinition
	read(t, config, apiextensionsv1.SchemeGroupVersion, definitions, "kettles.example.com", &crd)
	if c := crd.Spec.Conversion.Webhook; c == nil || c.ClientConfig.URL == nil || *c.ClientConfig.URL != "https://"+local+"/convert" ||
		c.ClientConfig.Service != nil {
		t.Errorf("objects are converted by %+v, want the local webhook", crd.Spec.Conversion)
	}
	var configuration admissionv1.ValidatingWebhookConfiguration
	read(t, config, admissionv1.SchemeGroupVersion, validatingConfigurations, "kettles", &configuration)
	if c := configuration.Webhooks[0].ClientConfig; c.URL == nil || *c.URL != "https://"+local+"/validate-kettle" || c.Service != nil ||
		len(c.CABundle) == 0 {
		t.Errorf("the webhook is called at %+v, want the local address", c)
	}

	// The arguments have an effect, the kubeconfig works, and further users have only the permissions of roles: none.
	var service corev1.Service
	fromFile, err := clientcmd.RESTConfigFromKubeConfig(env.KubeConfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientFor(fromFile, corev1.SchemeGroupVersion)
	if err == nil {
		err = c.Get().Namespace("default").Resource("services").Name("kubernetes").Do(t.Context()).Into(&service)
	}
	if err != nil || service.Spec.ClusterIP != "10.9.0.1" {
		t.Errorf("the Service kubernetes has the address %q (%v), want one of the range that was set", service.Spec.ClusterIP, err)
	}
	jane, err := env.AddUser(User{Name: "jane", Groups: []string{"people"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = clientFor(jane.Config(), corev1.SchemeGroupVersion); err != nil {
		t.Fatal(err)
	}
	if err := c.Get().Namespace("default").Resource("services").Do(t.Context()).Error(); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `"jane"`) {
		t.Errorf("jane reads Services: %v, want that she may not", err)
	}

	folders := []string{env.WebhookInstallOptions.LocalServingCertDir, env.ControlPlane.cluster.Dir}
	if err := env.Stop(); err != nil {
		t.Error(err)
	}
	for _, dir := range folders {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	if _, err := env.AddUser(User{Name: "joe"}, nil); err == nil {
		t.Error("a user was added to what does not run")
	}
}

// read reads an object without a namespace.
func read(t *testing.T, config *rest.Config, gv schema.GroupVersion, resource, name string, into runtime.Object) {
	t.Helper()
	c, err := clientFor(config, gv)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get().Resource(resource).Name(name).Do(t.Context()).Into(into); err != nil {
		t.Fatal(err)
	}
}

func TestEnvironmentMistakes(t *testing.T) {
	unknown := &Environment{}
	unknown.ControlPlane.GetAPIServer().Configure().Set("insecure-port", "8080")
	wrong := &Environment{}
	wrong.ControlPlane.GetAPIServer().Args = []string{"--max-requests-inflight=many"}
	for want, env := range map[string]*Environment{
		"has no flag --insecure-port": unknown,
		"--max-requests-inflight: ":   wrong,
		"no such file":                {CRDDirectoryPaths: []string{"testdata/nothing"}, ErrorIfCRDPathMissing: true},
		"testdata/none":               {WebhookInstallOptions: WebhookInstallOptions{Paths: []string{"testdata/none"}}},
	} {
		config, err := env.Start()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %q", err, want)
		}
		if config != nil || env.ControlPlane.cluster != nil {
			t.Errorf("%s: the control plane still runs", want)
		}
	}
}

// TestConvertible checks the rule of envtest: the operator converts a kind if one version is the hub and all others convert to it.
func TestConvertible(t *testing.T) {
	for _, test := range []struct {
		versions []runtime.Object
		want     bool
	}{
		{[]runtime.Object{&kettleHub{}, &kettleSpoke{}}, true},
		{[]runtime.Object{&kettleHub{}}, false},
		{[]runtime.Object{&kettle{}, &kettleSpoke{}}, false},
		{[]runtime.Object{&kettleHub{}, &kettleSpoke{}, &kettle{}}, false},
		{nil, false},
	} {
		scheme := runtime.NewScheme()
		for i, o := range test.versions {
			scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: []string{"v1", "v2", "v3"}[i],
				Kind: "Kettle"}, o)
		}
		if got := isConvertible(scheme, schema.GroupKind{Group: "example.com", Kind: "Kettle"}); got != test.want {
			t.Errorf("%v is convertible: %v, want %v", test.versions, got, test.want)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Spec.Group, crd.Spec.Names.Kind = "example.com", "Kettle"
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
		if err := convertLocally([]*apiextensionsv1.CustomResourceDefinition{crd}, scheme,
			WebhookInstallOptions{LocalServingCAData: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if (crd.Spec.Conversion != nil) != test.want {
			t.Errorf("%v has the conversion %+v", test.versions, crd.Spec.Conversion)
		}
	}
}

func TestMergeDefinitions(t *testing.T) {
	named := func(name, group string) *apiextensionsv1.CustomResourceDefinition {
		d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		d.Spec.Group = group
		return d
	}
	all := mergeDefinitions([]*apiextensionsv1.CustomResourceDefinition{named("a", "1"), named("b", "1")},
		[]*apiextensionsv1.CustomResourceDefinition{named("a", "2")})
	if len(all) != 2 || all[0].Name != "b" || all[1].Spec.Group != "2" {
		t.Errorf("got %v", all)
	}
	if got := mergePaths([]string{"a", "b"}, []string{"b", "c"}); !reflect.DeepEqual(got, []string{"a", "b", "c"}) {
		t.Errorf("got %v", got)
	}
}
