package codec

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

func newCodec(t testing.TB) *Codec {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return New(scheme)
}

// configMapDef returns a descriptor of ConfigMaps with what the store needs.
func configMapDef() *kind.Def {
	return kind.Define(kind.Resource[corev1.ConfigMap]{Traits: kind.Traits{GroupVersionKind: schema.GroupVersionKind{Version: "v1",
		Kind: "ConfigMap"}, Plural: "configmaps"}})
}

func newConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"b": "c"}}, Data: map[string]string{"x": "y"}}
}

// TestFastPathEqualsLibrary checks that the fast paths encode and decode as the library does.
func TestFastPathEqualsLibrary(t *testing.T) {
	c := newCodec(t)
	var want bytes.Buffer
	if err := c.proto.Encode(newConfigMap(), &want); err != nil {
		t.Fatal(err)
	}
	got, err := c.Store(configMapDef(), newConfigMap())
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("stored as %q, %v; want %q", got, err, want.Bytes())
	}
	var encoded bytes.Buffer
	for range 2 { // the second time with the buffer of the first
		encoded.Reset()
		if err := c.Append(&encoded, Proto, newConfigMap()); err != nil || !bytes.Equal(encoded.Bytes(), want.Bytes()) {
			t.Errorf("sent as %q, %v", encoded.Bytes(), err)
		}
	}
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	for name, data := range map[string][]byte{
		"good": want.Bytes(), "empty": {}, "no envelope": []byte("x"), "cut": want.Bytes()[:len(want.Bytes())-9],
		"only the prefix": []byte("k8s\x00"),
		"another kind":    bytes.Replace(want.Bytes(), []byte("ConfigMap"), []byte("ConfigMop"), 1),
		"another version": bytes.Replace(want.Bytes(), []byte("\x02v1"), []byte("\x02v2"), 1),
		"damaged":         append(bytes.Clone(want.Bytes()[:20]), 0xff, 0xff, 0xff),
	} {
		library, found, libraryErr := c.proto.Decode(data, &schema.GroupVersionKind{Version: gvk.Version, Kind: gvk.Kind},
			&corev1.ConfigMap{})
		fast, _, fastErr := c.Decode(data, Proto, gvk, &corev1.ConfigMap{}, true)
		accepted := libraryErr == nil && *found == gvk
		if accepted != (fastErr == nil) {
			t.Errorf("%s: the library returns %v (%v), Decode %v", name, libraryErr, found, fastErr)
		}
		if o, ok := library.(*corev1.ConfigMap); ok && accepted {
			o.SetGroupVersionKind(gvk)
			if !reflect.DeepEqual(fast, library) {
				t.Errorf("%s: got %v, want %v", name, fast, library)
			}
		}
	}
}

// TestEqualManagedFieldsAreShared checks that equal field sets share their memory, and that the number of remembered field
// sets is bounded.
func TestEqualManagedFieldsAreShared(t *testing.T) {
	var i interned
	withManagedFields := func(text string) *corev1.ConfigMap {
		o := newConfigMap()
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x", FieldsV1: metav1.NewFieldsV1(text)}, {Manager: "y"}}
		i.share(o)
		return o
	}
	text := func(o *corev1.ConfigMap) []byte { return o.ManagedFields[0].FieldsV1.GetRawBytes() }
	one, same, other := text(withManagedFields("a")), text(withManagedFields("a")), text(withManagedFields("b"))
	if &one[0] != &same[0] || &one[0] == &other[0] {
		t.Error("equal lists are not one, or different ones are")
	}
	for n := range 2 * maxInterned {
		if o := withManagedFields(fmt.Sprint(n)); string(text(o)) != fmt.Sprint(n) {
			t.Fatalf("%d became %s", n, text(o))
		}
	}
	if len(i.texts) > maxInterned {
		t.Errorf("%d are remembered", len(i.texts))
	}
	i.share(newConfigMap())
}

func FuzzEnvelope(f *testing.F) {
	c := newCodec(f)
	good, err := c.Store(configMapDef(), newConfigMap())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[len(envelope):])
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseEnvelope(data)
		var u runtime.Unknown
		if uerr := u.Unmarshal(data); err == nil && s.complete && uerr == nil {
			if u.APIVersion != string(s.version) || u.Kind != string(s.kind) || !bytes.Equal(u.Raw, s.raw) {
				t.Errorf("%q: got %q %q %q, the library %q %q %q", data, s.version, s.kind, s.raw, u.APIVersion, u.Kind, u.Raw)
			}
		}
	})
}
