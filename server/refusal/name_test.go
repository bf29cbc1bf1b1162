package refusal

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/lib/codec"
)

// protobuf returns a ConfigMap in Kubernetes' protobuf.
func protobuf(t testing.TB, name string, data int) string {
	t.Helper()
	raw, err := (&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: "generated"},
		Data: map[string]string{"a": strings.Repeat("x", data)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return "k8s\x00" + string(envelope)
}

// TestObjectName checks which names are found in bodies that were not decoded.
func TestObjectName(t *testing.T) {
	long := strings.Repeat("a", 254)
	proto := protobuf(t, "web", 10)
	for _, c := range []struct {
		what  string
		media codec.Media
		body  string
		want  string
	}{
		{"JSON", codec.JSON, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`, "web"},
		{"JSON with spaces", codec.JSON, " { \"metadata\" :\n{ \"labels\" : {\"name\":\"other\"} , \"name\" : \"web\" } }", "web"},
		{"metadata after data with brackets in strings", codec.JSON, `{"data":{"a":"}{\"],","metadata":{"name":"other"},"b":[1,{"c":null}]},"metadata":{"name":"web"}}`, "web"},
		{"a name of something else", codec.JSON, `{"name":"other","spec":{"metadata":{"name":"other"}}}`, ""},
		{"a name that is generated", codec.JSON, `{"metadata":{"generateName":"web-"}}`, ""},
		{"a name of a role", codec.JSON, `{"metadata":{"name":"system:web.x"}}`, "system:web.x"},
		{"a name that is a number", codec.JSON, `{"metadata":{"name":1}}`, ""},
		{"metadata that are a list", codec.JSON, `{"metadata":["name","web"]}`, ""},
		{"a body that ends in the name", codec.JSON, `{"metadata":{"name":"we`, ""},
		{"a body that ends after the name", codec.JSON, `{"metadata":{"name":"web"`, "web"},
		{"a syntax error after the name", codec.JSON, `{"metadata":{"name":"web"},,`, "web"},
		{"a syntax error before the name", codec.JSON, `{"a" "b","metadata":{"name":"web"}`, ""},
		{"no value", codec.JSON, `{"metadata":{"name":`, ""},
		{"an escape at the end", codec.JSON, `{"metadata":{"name":"web\`, ""},
		{"a name with an escape", codec.JSON, `{"metadata":{"name":"w\u0065b"}}`, ""},
		{"a name with capitals", codec.JSON, `{"metadata":{"name":"Web"}}`, ""},
		{"a name with a control character", codec.JSON, "{\"metadata\":{\"name\":\"web\x1b[31m\"}}", ""},
		{"a name with a slash", codec.JSON, `{"metadata":{"name":"../web"}}`, ""},
		{"a name that is too long", codec.JSON, `{"metadata":{"name":"` + long + `"}}`, ""},
		{"a name that is just not too long", codec.JSON, `{"metadata":{"name":"` + long[1:] + `"}}`, long[1:]},
		{"a name within what is searched", codec.JSON, `{"data":"` + strings.Repeat("x", maxScanned/2) + `","metadata":{"name":"web"},"rest":"` +
			strings.Repeat("x", maxScanned) + `"}`, "web"},
		{"a name after what is searched", codec.JSON, `{"data":"` + strings.Repeat("x", maxScanned) + `","metadata":{"name":"web"}}`, ""},
		{"many brackets", codec.JSON, strings.Repeat(`{"a":[`, 10_000), ""},
		{"nothing", codec.JSON, "", ""},
		{"garbage", codec.JSON, "\xff\x00{\"", ""},

		{"YAML", codec.YAML, "# a Pod\n---\napiVersion: v1\nmetadata:\n  labels:\n    name: other\n  # its name\n\n  name: web # here\nspec: {}\n", "web"},
		{"YAML with quotes and another end of lines", codec.YAML, "\"metadata\":\r\n    'name': \"web\"\r\n", "web"},
		{"YAML in braces", codec.YAML, "kind: Pod\nmetadata: {namespace: x, name: 'web', labels: {name: other}}\n", "web"},
		{"YAML in braces, with something nested first", codec.YAML, "metadata: {labels: {a: b, name: other}, name: web}\n", ""},
		{"YAML without a name", codec.YAML, "metadata:\n  generateName: web-\nspec:\n  name: other\n", ""},
		{"a text that has metadata", codec.YAML, "data:\n  a: |\n    metadata:\n      name: other\n", ""},
		{"metadata of a template", codec.YAML, "spec:\n  template:\n    metadata:\n      name: other\n", ""},
		{"JSON as YAML", codec.YAML, "\n{\"metadata\": {\"name\": \"web\"}}", "web"},
		{"YAML that is cut in the name", codec.YAML, "metadata:\n  name: web" + strings.Repeat("x", maxScanned), ""},
		{"YAML garbage", codec.YAML, ":\n:::\n\t- {{{ metadata: name", ""},

		{"protobuf", codec.Proto, proto, "web"},
		{"protobuf that is larger than what is searched", codec.Proto, protobuf(t, "web", 2*maxScanned), "web"},
		{"protobuf with an invalid name", codec.Proto, protobuf(t, "a b", 0), ""},
		{"protobuf that ends in the name", codec.Proto, proto[:strings.Index(proto, "web")+2], ""},
		{"protobuf that ends after the name", codec.Proto, proto[:strings.Index(proto, "web")+3], "web"},
		{"protobuf without an envelope", codec.Proto, proto[4:], ""},
		{"protobuf with a wrong length", codec.Proto, "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a\x05", ""},
		{"protobuf garbage", codec.Proto, "k8s\x00" + strings.Repeat("\xff", 100), ""},
		{"JSON as protobuf", codec.Proto, `{"metadata":{"name":"web"}}`, ""},
	} {
		if got := ObjectName([]byte(c.body), c.media); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// TestYAMLScalars checks that a scalar is a name exactly if the decoder of the server reads it as a string.
func TestYAMLScalars(t *testing.T) {
	names := 0
	for _, scalar := range strings.Fields("web null Null ~ true True false yes no on off y n nul nullx true-1 n1 x-1 " +
		"0 1 12 017 089 1.5 1.5.2 1e3 1e-3 1e999 1e 12e 1-2 0x1f 0x1g 0x1p-2 0o17 0o18 0b11 0b12 18446744073709551615 18446744073709551616 " +
		"0x1ffffffffffffffff inf nan infinity +1 -1 2026-01-02 1a 1.a") {
		for text, quoted := range map[string]bool{scalar: false, `"` + scalar + `"`: true, "'" + scalar + "'": true} {
			var object struct{ Metadata struct{ Name any } }
			if err := yaml.Unmarshal([]byte("metadata:\n  name: "+text+"\n"), &object); err != nil {
				t.Fatal(err)
			}
			want, isString := object.Metadata.Name.(string)
			if quoted && !isString {
				t.Fatalf("the decoder reads %s as %v", text, object.Metadata.Name)
			}
			if !isValidName(want) {
				want = ""
			}
			if want != "" {
				names++
			}
			for _, body := range []string{"metadata:\n  name: " + text + " # here\n", "metadata: {name: " + text + "}\n"} {
				if got := ObjectName([]byte(body), codec.YAML); got != want {
					t.Errorf("%q: %q, want %q", body, got, want)
				}
			}
		}
	}
	if names == 0 {
		t.Error("no scalar is a name")
	}
}

// FuzzObjectName checks that whatever is found is a valid name and stands in the body.
func FuzzObjectName(f *testing.F) {
	f.Add([]byte(`{"a":[],"metadata":{"name":"web"}}`))
	f.Add([]byte("metadata:\n  name: web\n"))
	f.Add([]byte("metadata: {name: web}\n"))
	f.Add([]byte(protobuf(f, "web", 1)))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, media := range []codec.Media{codec.JSON, codec.YAML, codec.Proto} {
			name := ObjectName(body, media)
			if name != "" && (!isValidName(name) || !bytes.Contains(body, []byte(name))) {
				t.Errorf("%q", name)
			}
		}
	})
}
