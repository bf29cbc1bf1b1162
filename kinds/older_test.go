package kinds_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
)

// publishedObjects returns the fully populated objects that are published with the API types, as servers of a release of
// Kubernetes stored them.
func publishedObjects(t *testing.T, release, media string) map[schema.GroupVersionKind][]byte {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Skip("go list:", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", release, "*."+media))
	if err != nil || len(files) == 0 {
		t.Skip("no example objects")
	}
	all := map[schema.GroupVersionKind][]byte{}
	for _, f := range files {
		// GROUP.VERSION.KIND.json, where the group has dots too
		words := strings.Split(strings.TrimSuffix(filepath.Base(f), "."+media), ".")
		n := len(words)
		gvk := schema.GroupVersionKind{Group: strings.Join(words[:n-2], "."), Version: words[n-2], Kind: words[n-1]}
		if gvk.Group == "core" {
			gvk.Group = ""
		}
		if all[gvk], err = os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func newCodec(t *testing.T) *codec.Codec {
	t.Helper()
	s, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return codec.New(s)
}

// fieldLines returns the values that are set in an object with their paths, one a line, so that a field that a conversion
// drops or moves is noticed.
func fieldLines(t *testing.T, obj runtime.Object) string {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	delete(m, "apiVersion")
	var lines []string
	var visit func(path string, v any)
	visit = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				visit(path+"."+k, x)
			}
		case []any:
			for i, x := range v {
				visit(fmt.Sprint(path, "[", i, "]"), x)
			}
		default:
			lines = append(lines, fmt.Sprint(path, "=", v))
		}
	}
	visit("", m)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// toV1 maps names of fields in v1beta1 to those in v1, for the kinds whose versions differ.
var toV1 = strings.NewReplacer(".basic.", ".")

// TestStoredVersionsOfUpstream checks that an object that Kubernetes 1.35 to 1.37 stored in an older version, as JSON
// or protobuf, is read with all its fields.
func TestStoredVersionsOfUpstream(t *testing.T) {
	c := newCodec(t)
	read := 0
	for _, release := range []string{"v1.35.0", "v1.36.0", "HEAD"} {
		for _, media := range []string{"json", "pb"} {
			examples := publishedObjects(t, release, media)
			for _, d := range kinds.WithGangs(kinds.All()) {
				for _, o := range d.Older {
					gvk := schema.GroupVersionKind{Group: d.Group, Version: o.Version, Kind: d.Kind}
					value, ok := examples[gvk]
					if !ok {
						continue // which this release does not have
					}
					read++
					got, err := c.Load(d, kv.Pair{Key: d.Key("ns", "name"), Value: value, Rev: 7})
					if err != nil {
						t.Errorf("%s of %s, %s: %v", gvk, release, media, err)
						continue
					}
					if got.GetObjectKind().GroupVersionKind() != d.GroupVersionKind {
						t.Errorf("%s is read as %s", gvk, got.GetObjectKind().GroupVersionKind())
					}
					was, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					was.(metav1.Object).SetResourceVersion("7")
					compareFields(t, gvk.String()+" of "+release, fieldLines(t, was), fieldLines(t, got))
				}
			}
		}
	}
	if read < 60 {
		t.Errorf("only %d stored objects were read", read)
	}
}

// compareFields reports the fields that the older object has and the one that was read has not.
func compareFields(t *testing.T, what, was, is string) {
	t.Helper()
	have := strings.Split(is, "\n")
	for _, line := range strings.Split(was, "\n") {
		exact := strings.Replace(toV1.Replace(line), "]", "].exactly", 1)
		switch {
		case slices.Contains(have, line), slices.Contains(have, toV1.Replace(line)):
		case strings.Contains(line, ".devices.requests[0].") && slices.Contains(have, exact):
		case strings.Contains(what, "PodCertificateRequest") &&
			(strings.HasPrefix(line, ".spec.pkixPublicKey") || strings.HasPrefix(line, ".spec.proofOfPossession")):
		default:
			t.Errorf("%s: %s is lost", what, line)
		}
	}
}

// TestStoredDefinition checks that a definition in v1beta1, as every kube-apiserver stores it, is read with the
// properties that its versions share.
func TestStoredDefinition(t *testing.T) {
	c := newCodec(t)
	old := &apiextensionsv1beta1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1beta1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "ships.example.com", UID: "u"},
		Spec: apiextensionsv1beta1.CustomResourceDefinitionSpec{
			Group: "example.com", Version: "v1", Scope: "Namespaced",
			Names: apiextensionsv1beta1.CustomResourceDefinitionNames{Plural: "ships", Kind: "Ship"},
			Versions: []apiextensionsv1beta1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true},
				{Name: "v2", Served: true}},
			Validation: &apiextensionsv1beta1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1beta1.JSONSchemaProps{Type: "object", Description: "a ship"}},
			Subresources: &apiextensionsv1beta1.CustomResourceSubresources{Status: &apiextensionsv1beta1.CustomResourceSubresourceStatus{}},
			AdditionalPrinterColumns: []apiextensionsv1beta1.CustomResourceColumnDefinition{{Name: "Length", Type: "integer",
				JSONPath: ".spec.length"}},
			Conversion:            &apiextensionsv1beta1.CustomResourceConversion{Strategy: "None"},
			PreserveUnknownFields: new(false),
		},
		Status: apiextensionsv1beta1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
	s := runtime.NewScheme()
	if err := apiextensionsv1beta1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]runtime.Encoder{
		"protobuf": protobuf.NewSerializer(s, s),
		"json":     json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{}),
	} {
		var value bytes.Buffer
		if err := e.Encode(old, &value); err != nil {
			t.Fatal(err)
		}
		obj, err := c.Load(defOf(t, "customresourcedefinitions"), kv.Pair{Value: value.Bytes(), Rev: 3})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := obj.(*apiextensionsv1.CustomResourceDefinition)
		if len(got.Spec.Versions) != 2 || got.APIVersion != "apiextensions.k8s.io/v1" || got.UID != "u" || got.ResourceVersion != "3" {
			t.Fatalf("%s: %+v", name, got)
		}
		for _, v := range got.Spec.Versions {
			if v.Schema == nil || v.Schema.OpenAPIV3Schema.Description != "a ship" || v.Subresources == nil ||
				v.Subresources.Status == nil ||
				len(v.AdditionalPrinterColumns) != 1 || v.AdditionalPrinterColumns[0].JSONPath != ".spec.length" {
				t.Errorf("%s: version %+v lacks what all have in common", name, v)
			}
		}
	}
}

func defOf(t *testing.T, plural string) *kind.Def {
	t.Helper()
	for _, d := range kinds.WithGangs(kinds.All()) {
		if d.Plural == plural && d.Hub == nil {
			return d
		}
	}
	t.Fatal("no " + plural)
	return nil
}

// upstreamStores returns the storage versions that default_storage_factory_builder.go and apiextensions.go of Kubernetes 1.35,
// 1.36 and 1.37 name.
func upstreamStores() map[string][]string {
	return map[string][]string{
		"mutatingadmissionpolicies": {"v1beta1"}, "mutatingadmissionpolicybindings": {"v1beta1"},
		"clustertrustbundles": {"v1beta1"}, "podcertificaterequests": {"v1beta1"}, "volumeattributesclasses": {"v1beta1"},
		"storageversionmigrations": {"v1beta1"}, "devicetaintrules": {"v1alpha3", "v1beta2"}, "customresourcedefinitions": {"v1beta1"},
		"workloads": {"v1beta1"}, "podgroups": {"v1beta1"}, // v1alpha1 and v1alpha2 of 1.35 and 1.36 are unknown to Kubernetes 1.37, too
	}
}

// notStored are versions that no server of Kubernetes 1.35 or newer stores, however it is configured: the next version of each came
// with 1.31 or before, and a server of 1.35 keeps to what one of 1.31 can read at most.
func notStored() map[schema.GroupVersion]bool {
	out := map[schema.GroupVersion]bool{}
	for _, gv := range []string{
		"apps/v1beta1", "apps/v1beta2", "batch/v1beta1", "autoscaling/v1", "policy/v1beta1", "events.k8s.io/v1beta1",
		"discovery.k8s.io/v1beta1",
		"rbac.authorization.k8s.io/v1alpha1", "rbac.authorization.k8s.io/v1beta1", "node.k8s.io/v1alpha1", "node.k8s.io/v1beta1",
		"flowcontrol.apiserver.k8s.io/v1beta1", "flowcontrol.apiserver.k8s.io/v1beta2", "flowcontrol.apiserver.k8s.io/v1beta3",
		"coordination.k8s.io/v1beta1",
	} {
		v, _ := schema.ParseGroupVersion(gv)
		out[v] = true
	}
	return out
}

// notStoredKinds are kinds of groups some of whose other kinds are still stored in an older version.
func notStoredKinds() []string {
	return []string{
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"CertificateSigningRequest", "Ingress", "IngressClass", "PriorityClass", "StorageClass", "VolumeAttachment", "CSIDriver", "CSINode",
		"CSIStorageCapacity",
	}
}

// TestOlderVersionsAreListed checks that a descriptor lists every version of k8s.io/api in which Kubernetes may have
// stored its kind.
func TestOlderVersionsAreListed(t *testing.T) {
	never, kindsNever := notStored(), notStoredKinds()
	for _, d := range kinds.WithGangs(kinds.All()) {
		if d.Hub != nil || d.Transient || d.Computed != nil {
			continue
		}
		reads := func(version string) bool {
			_, listed := d.OlderVersion(version)
			return listed || version == d.Version
		}
		if !reads(d.StorageVersion) {
			t.Errorf("%s is stored as %s, which it does not read", d.Plural, d.StorageVersion)
		}
		for _, v := range upstreamStores()[d.Plural] {
			if !reads(v) {
				t.Errorf("Kubernetes stores %s as %s, which is not read", d.Plural, v)
			}
		}
		for _, gv := range scheme.Scheme.VersionsForGroupKind(schema.GroupKind{Group: d.Group, Kind: d.Kind}) {
			if reads(gv.Version) || never[gv] {
				continue
			}
			if obj, err := scheme.Scheme.New(gv.WithKind(d.Kind)); err == nil && slices.Contains(kindsNever, d.Kind) &&
				introducedIn(d) <= 31 {
				if _, err := meta.Accessor(obj); err == nil {
					continue
				}
			}
			t.Errorf("%s: %s is neither read nor listed in notStored or notStoredKinds", d.Plural, gv)
		}
	}
}

// introducedIn returns the minor release of Kubernetes that introduced the version that the server works with, or 0 for old
// types, which do not have that information.
func introducedIn(d *kind.Def) int {
	if o, ok := d.New().(interface{ APILifecycleIntroduced() (major, minor int) }); ok {
		_, minor := o.APILifecycleIntroduced()
		return minor
	}
	return 0
}

// TestStoredForUpstream checks that objects are written in the storage version of Kubernetes, and are read back whole.
func TestStoredForUpstream(t *testing.T) {
	c := newCodec(t)
	for _, d := range kinds.WithGangs(kinds.All()) {
		if d.StorageVersion == d.Version || d.Hub != nil {
			continue
		}
		obj := d.New()
		obj.GetObjectKind().SetGroupVersionKind(d.GroupVersionKind)
		obj.SetName("a")
		value, err := c.Store(d, obj)
		if err != nil {
			t.Fatal(err)
		}
		if obj.GetObjectKind().GroupVersionKind() != d.GroupVersionKind {
			t.Errorf("storing has changed the object to %s", obj.GetObjectKind().GroupVersionKind())
		}
		_, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
		if err != nil || gvk.Version != d.StorageVersion {
			t.Errorf("%s is stored as %v, %v; want %s", d.Plural, gvk, err, d.StorageVersion)
		}
		if back, err := c.Load(d, kv.Pair{Value: value, Rev: 1}); err != nil || back.GetName() != "a" ||
			back.GetObjectKind().GroupVersionKind() != d.GroupVersionKind {
			t.Errorf("%s is read back as %v, %v", d.Plural, back, err)
		}
	}
}

// TestStoredUnderAnotherKind checks that JSON of another kind or of an unknown version is an error, not an empty
// object.
func TestStoredUnderAnotherKind(t *testing.T) {
	c, d := newCodec(t), defOf(t, "configmaps")
	for _, value := range []string{
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`, `{"apiVersion":"v9","kind":"ConfigMap","metadata":{"name":"a"}}`,
		`{"metadata":{"name":"a"}}`, `{}`, `x`, "",
	} {
		if obj, err := c.Load(d, kv.Pair{Value: []byte(value), Rev: 1}); err == nil {
			t.Errorf("%q is read as %v", value, obj)
		}
	}
}
