package encode

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
)

// KeepsBodies reports whether the bodies of a request are kept beside its record, once it has one. Kept are those that the audit log
// would show at its level RequestResponse: never those of Secrets, tokens and other kinds that hold secrets.
func KeepsBodies(recorder *hop.Recorder, r *server.Request) bool {
	sub := ""
	if r.Sub != nil {
		sub = r.Sub.Name
	}
	return r.Clock.Detailed && recorder.KeepsBodies(r.Def.Group, r.Def.Plural, sub) && !r.Def.HoldsSecrets(sub)
}

// ObjectBody is an object of a caller in this process as it is kept beside the record of a request. Most are protobuf, which is small and
// soon made; JSON is made only when somebody asks for it.
type ObjectBody struct {
	Data []byte // empty if it is larger than hop.MaxBody
	Type string // the media type
	Size int    // in bytes, of the whole
	JSON func(data []byte) ([]byte, error)
}

// message is a generated protobuf message.
type message interface {
	Size() int
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// BodyOf encodes an object for a record. An object without a kind gets the given one when it is shown. The object is not kept, so its
// owner may change it. What cannot be encoded is left out.
func BodyOf(obj runtime.Object, gvk schema.GroupVersionKind) ObjectBody {
	if own := obj.GetObjectKind().GroupVersionKind(); !own.Empty() {
		gvk = own
	}
	obj = obj.DeepCopyObject() // encoding a quantity changes it, and the object may be shared
	m, isMessage := obj.(message)
	if !isMessage {
		return jsonBody(obj)
	}
	b := ObjectBody{Type: codec.Proto.ContentType(), Size: m.Size()}
	if b.Size > hop.MaxBody {
		return b
	}
	var err error
	if b.Data, err = m.Marshal(); err != nil {
		return ObjectBody{}
	}
	t := reflect.TypeOf(obj).Elem()
	b.JSON = func(data []byte) ([]byte, error) {
		again, ok := reflect.New(t).Interface().(interface {
			message
			runtime.Object
		})
		if !ok {
			return nil, fmt.Errorf("%s is no object", t)
		}
		if err := again.Unmarshal(data); err != nil {
			return nil, err
		}
		again.GetObjectKind().SetGroupVersionKind(gvk)
		return json.Marshal(again)
	}
	return b
}

// jsonBody encodes an object that has no protobuf form, such as one of a custom resource.
func jsonBody(obj runtime.Object) ObjectBody {
	var data []byte
	var err error
	if u, isUntyped := obj.(*unstructured.Unstructured); isUntyped {
		data, err = codec.AppendUntyped(nil, u.Object)
	} else {
		data, err = json.Marshal(obj)
	}
	if err != nil {
		return ObjectBody{}
	}
	b := ObjectBody{Type: codec.JSON.ContentType(), Size: len(data)}
	if b.Size <= hop.MaxBody {
		b.Data = append(b.Data, data...) // without the spare capacity
	}
	return b
}
