// Package codec turns objects into bytes and back: JSON, YAML and protobuf on the wire, and the protobuf
// envelope in the store. It owns the scheme of the served types.
package codec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "sigs.k8s.io/json"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/quantity"
	"proa.dev/kv"
)

// Media is a wire format.
type Media uint8

// The wire formats.
const (
	JSON Media = iota + 1
	YAML
	Proto
)

// ContentType returns the format's media type.
func (m Media) ContentType() string {
	return [...]string{"", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}[m]
}

// MediaOf returns the format of a Content-Type without parameters; empty means JSON.
func MediaOf(contentType string) (Media, bool) {
	switch contentType {
	case "", "application/json":
		return JSON, true
	case "application/yaml":
		return YAML, true
	case "application/vnd.kubernetes.protobuf":
		return Proto, true
	}
	return 0, false
}

// Codec encodes and decodes the types of its scheme.
type Codec struct {
	Scheme                      *runtime.Scheme
	proto                       *protobuf.Serializer
	json, strict, yaml, ystrict *json.Serializer
	fields                      interned
	messages                    quantity.Messages
}

// New returns a codec of a scheme.
func New(scheme *runtime.Scheme) *Codec {
	s := func(yaml, strict bool) *json.Serializer {
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: yaml, Strict: strict})
	}
	return &Codec{
		Scheme: scheme, proto: protobuf.NewSerializer(scheme, scheme),
		json: s(false, false), strict: s(false, true), yaml: s(true, false), ystrict: s(true, true),
	}
}

// Error is the failure to decode an object, with the kind that the data claims to be, when it could be read.
type Error struct {
	Found *schema.GroupVersionKind
	Err   error
}

// Error is the failure to decode an object, with the kind in the data, if that could be decoded.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Decode decodes an object of the wanted kind. The second result lists what strict decoding found: unknown and
// duplicate fields. The kind in the data, if there is one, must be the wanted one.
func (c *Codec) Decode(data []byte, m Media, want schema.GroupVersionKind, into runtime.Object, strict bool) (runtime.Object, []error,
	error) {
	if err := c.checkQuantities(data, m, want, into); err != nil {
		return nil, nil, &Error{Found: &want, Err: err}
	}
	if m == Proto && decodeExact(data, want, into) {
		into.GetObjectKind().SetGroupVersionKind(want)
		return into, nil, nil
	}
	var d runtime.Decoder
	switch {
	case m == Proto:
		d = c.proto
	case m == YAML && strict:
		d = c.ystrict
	case m == YAML:
		d = c.yaml
	case strict:
		d = c.strict
	default:
		d = c.json
	}
	obj, gvk, err := d.Decode(data, &want, into)
	var found []error
	if s, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		found, err = s.Errors(), nil
	}
	if err != nil {
		return nil, nil, &Error{Found: gvk, Err: err}
	}
	if gvk != nil && *gvk != want {
		if gvk.Kind == want.Kind {
			return nil, nil, fmt.Errorf("the API version in the data (%s) does not match the expected API version (%s)", gvk.GroupVersion(), want.GroupVersion())
		}
		return nil, nil, &Error{Found: gvk,
			Err: fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", gvk.Version, gvk.Kind, internalVersion(want.Group),
				want.Kind)}
	}
	obj.GetObjectKind().SetGroupVersionKind(want)
	return obj, found, nil
}

// decodeExact decodes protobuf of exactly the wanted kind without the library, and reports whether it could. Otherwise the
// library decodes it or returns the error.
func decodeExact(data []byte, want schema.GroupVersionKind, into runtime.Object) bool {
	rest, ok := bytes.CutPrefix(data, envelope)
	po, can := into.(protoObject)
	if !ok || !can {
		return false
	}
	s, err := parseEnvelope(rest)
	if err != nil || !s.complete || string(s.kind) != want.Kind || string(s.version) != want.GroupVersion().String() {
		return false
	}
	po.Reset()
	return po.Unmarshal(s.raw) == nil
}

// internalVersion returns the name of upstream's internal version of a group, which error messages contain.
func internalVersion(group string) string {
	name, _, _ := strings.Cut(group, ".")
	if name == "" || name == "events" {
		return "core"
	}
	return name
}

// DecodeOptions decodes the options of a request, which have the same name in every group version, also in those of
// custom resources.
func (c *Codec) DecodeOptions(data []byte, m Media, want schema.GroupVersionKind, into runtime.Object) error {
	creator := optionsCreator{c.Scheme, want.Kind, into}
	var d runtime.Decoder = protobuf.NewSerializer(creator, c.Scheme)
	if m != Proto {
		d = json.NewSerializerWithOptions(json.DefaultMetaFactory, creator, c.Scheme, json.SerializerOptions{Yaml: m == YAML})
	}
	_, gvk, err := d.Decode(data, &want, into)
	if err == nil && gvk.Kind != want.Kind {
		err = fmt.Errorf("no kind %q is registered for version %q in scheme \"pkg/runtime/scheme.go:111\"", gvk.Kind, gvk.GroupVersion())
	}
	return err
}

// optionsCreator makes a decoder decode every version of a kind into the same object.
type optionsCreator struct {
	*runtime.Scheme
	kind string
	into runtime.Object
}

// New returns the object to decode into.
func (o optionsCreator) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	if gvk.Kind == o.kind {
		return o.into, nil
	}
	return o.Scheme.New(gvk)
}

// Append encodes an object, which has its kind set, in a wire format.
func (c *Codec) Append(buf *bytes.Buffer, m Media, obj runtime.Object) error {
	switch m {
	case Proto:
		memory := runtime.AllocatorPool.Get().(*runtime.Allocator)
		defer runtime.AllocatorPool.Put(memory)
		return c.proto.EncodeWithAllocator(obj, buf, memory)
	case YAML:
		return c.yaml.Encode(obj, buf)
	default:
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return appendLine(buf, u.Object)
		}
		return c.json.Encode(obj, buf)
	}
}

// appendLine writes the JSON of an untyped object and a line break, as the library's encoders do.
func appendLine(buf *bytes.Buffer, content map[string]any) error {
	text, err := AppendUntyped(buf.AvailableBuffer(), content)
	if err != nil {
		return err
	}
	buf.Write(text)
	return buf.WriteByte('\n')
}

// envelope is the prefix of every stored value.
var envelope = []byte{'k', '8', 's', 0}

type protoObject interface {
	Reset()
	Unmarshal([]byte) error
}

// sliceWriter is a writer that keeps the slice that is written to it, without a copy. It is for one write of memory that
// nobody else uses.
type sliceWriter []byte

// Write keeps b.
func (k *sliceWriter) Write(b []byte) (int, error) {
	*k = b
	return len(b), nil
}

// Store encodes an object for the store, in its storage version, without the resourceVersion, which is the revision.
func (c *Codec) Store(def *kind.Def, obj kind.Object) ([]byte, error) {
	rv := obj.GetResourceVersion()
	obj.SetResourceVersion("")
	defer obj.SetResourceVersion(rv)
	if def.StorageVersion != def.Version && def.Store == nil {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: def.Group, Version: def.StorageVersion, Kind: def.Kind})
		defer obj.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
	}
	if def.Store != nil {
		return def.Store(obj)
	}
	if _, ok := obj.(protoObject); !ok {
		var buf bytes.Buffer
		err := c.json.Encode(obj, &buf)
		return buf.Bytes(), err
	}
	var out sliceWriter
	err := c.proto.EncodeWithAllocator(obj, &out, &runtime.SimpleAllocator{})
	return out, err
}

// Load decodes a stored value of a kind, in whichever version it was stored.
func (c *Codec) Load(def *kind.Def, p kv.Pair) (kind.Object, error) {
	if p.Err != nil {
		return nil, kv.NewUnreadable(p, p.Err)
	}
	obj, err := load(def, p.Value)
	return c.loaded(def, p, obj, err)
}

// LoadAll decodes stored values as Load does, and uses the definition's LoadAll if it has one.
func (c *Codec) LoadAll(ctx context.Context, def *kind.Def, pairs []kv.Pair) []kind.Loaded {
	out := make([]kind.Loaded, len(pairs))
	var values [][]byte
	var places []int // of the values in pairs
	for i, p := range pairs {
		if p.Err != nil || def.LoadAll == nil {
			out[i].Object, out[i].Err = c.Load(def, p)
			continue
		}
		values, places = append(values, p.Value), append(places, i)
	}
	if len(values) == 0 {
		return out
	}
	for j, l := range def.LoadAll(ctx, values) {
		i := places[j]
		out[i].Object, out[i].Err = c.loaded(def, pairs[i], l.Object, l.Err)
	}
	return out
}

// loaded completes an object that was decoded from a pair.
func (c *Codec) loaded(def *kind.Def, p kv.Pair, obj kind.Object, err error) (kind.Object, error) {
	if err != nil {
		if def.Confidential {
			err = errors.New("the stored value is damaged") // the error of the decoder may quote it
		}
		return nil, kv.NewUnreadable(p, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
	if def.Load == nil { // custom objects are defaulted when they are converted, and have no field sets to share
		def.Default(obj)
		c.fields.share(obj)
	}
	obj.SetResourceVersion(strconv.FormatInt(p.Rev, 10))
	return obj, nil
}

// load decodes a stored value and converts it to the hub.
func load(def *kind.Def, value []byte) (kind.Object, error) {
	if def.Load != nil {
		return def.Load(value)
	}
	found, decode, err := parseStored(value)
	if err != nil {
		return nil, err
	}
	if found == def.GroupVersionKind {
		obj := def.New()
		return obj, decode(obj)
	}
	older, known := def.OlderVersion(found.Version)
	if !known || found.Group != def.Group || found.Kind != def.Kind {
		return nil, fmt.Errorf("stored as %s %s, want %s %s", found.GroupVersion(), found.Kind, def.GroupVersion(), def.Kind)
	}
	if older.New == nil {
		obj := def.New()
		return obj, decode(obj)
	}
	obj := older.New()
	if err := decode(obj); err != nil {
		return nil, err
	}
	obj, err = older.Convert(obj)
	if err != nil {
		return nil, fmt.Errorf("convert from %s: %w", found.GroupVersion(), err)
	}
	return obj, nil
}

// parseStored returns the kind of a stored value, and a function that decodes it into an object with these fields.
func parseStored(value []byte) (schema.GroupVersionKind, func(kind.Object) error, error) {
	rest, isProto := bytes.CutPrefix(value, envelope)
	if !isProto {
		found, err := json.DefaultMetaFactory.Interpret(value)
		if err != nil {
			return schema.GroupVersionKind{}, nil, fmt.Errorf("decode: %w", err)
		}
		return *found, func(obj kind.Object) error {
			if err := utiljson.UnmarshalCaseSensitivePreserveInts(value, obj); err != nil {
				return fmt.Errorf("decode: %w", err)
			}
			return nil
		}, nil
	}
	s, err := parseEnvelope(rest)
	if err != nil {
		return schema.GroupVersionKind{}, nil, fmt.Errorf("decode envelope: %w", err)
	}
	return schema.FromAPIVersionAndKind(string(s.version), string(s.kind)), func(obj kind.Object) error {
		po, ok := obj.(protoObject)
		if !ok {
			return errors.New("stored as protobuf, which the kind does not have")
		}
		if err := po.Unmarshal(s.raw); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		return nil
	}, nil
}

// AddMeta registers the types that every server has besides its resources.
func AddMeta(scheme *runtime.Scheme) error {
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return err
	}
	unversioned := schema.GroupVersion{Version: "v1"}
	scheme.AddUnversionedTypes(unversioned, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{},
		&metav1.APIResourceList{})
	return nil
}
