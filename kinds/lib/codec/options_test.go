package codec_test

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/lib/codec"
)

// TestDecodeOptions decodes DeleteOptions as clients of built-in and of custom resources write them: in the version
// of the resource.
func TestDecodeOptions(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := codec.AddMeta(scheme); err != nil {
		t.Fatal(err)
	}
	c := codec.New(scheme)
	for _, version := range []string{"", "v1", "meta.k8s.io/v1", "example.com/v1beta1"} {
		for _, kind := range []string{"DeleteOptions", "Other"} {
			written := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: kind, APIVersion: version}, GracePeriodSeconds: new(int64(3))}
			text := `{"kind": "` + kind + `", "apiVersion": "` + version + `", "gracePeriodSeconds": 3}`
			bodies := map[codec.Media][]byte{codec.JSON: []byte(text), codec.YAML: []byte(text)}
			if version != "" {
				var proto bytes.Buffer
				if err := c.Append(&proto, codec.Proto, written); err != nil {
					t.Fatal(err)
				}
				bodies[codec.Proto] = proto.Bytes()
			}
			for m, body := range bodies {
				o := &metav1.DeleteOptions{}
				err := c.DecodeOptions(body, m, metav1.SchemeGroupVersion.WithKind("DeleteOptions"), o)
				switch {
				case kind == "Other" && (err == nil || !strings.Contains(err.Error(), `no kind "Other" is registered`)):
					t.Errorf("%s %s of version %q: %v, want that it is unknown", m.ContentType(), kind, version, err)
				case kind == "DeleteOptions" && (err != nil || o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 3):
					t.Errorf("%s of version %q: %+v (%v), want three seconds", m.ContentType(), version, o, err)
				}
			}
		}
	}
}
