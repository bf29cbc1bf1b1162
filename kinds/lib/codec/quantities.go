package codec

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"proa.dev/kinds/lib/quantity"
)

// checkQuantities returns an error for data with a quantity that would take too long to parse.
func (c *Codec) checkQuantities(data []byte, m Media, want schema.GroupVersionKind, into runtime.Object) error {
	switch m {
	case Proto:
		var u runtime.Unknown
		if !quantity.IsSuspicious(data) || len(data) < len(envelope) || u.Unmarshal(data[len(envelope):]) != nil {
			return nil
		}
		return c.eachType(u.GroupVersionKind(), want, into, func(t reflect.Type) error { return c.messages.CheckProto(u.Raw, t) })
	case YAML:
		data = quantity.ToJSONIfSuspicious(data)
	case JSON:
	}
	if !quantity.IsSuspicious(data) {
		return nil
	}
	said, err := json.DefaultMetaFactory.Interpret(data)
	if err != nil {
		return nil //nolint:nilerr // the decoder returns the error
	}
	return c.eachType(*said, want, into, func(t reflect.Type) error { return quantity.CheckJSON(data, t) })
}

// eachType calls check with every type that data may be decoded into. Data whose kind is not the wanted one is
// decoded as its own kind before it is refused.
func (c *Codec) eachType(said, want schema.GroupVersionKind, into runtime.Object, check func(reflect.Type) error) error {
	if err := check(reflect.TypeOf(into)); err != nil {
		return err
	}
	if said.Kind == "" {
		said.Kind = want.Kind
	}
	if said.Version == "" {
		said.Group, said.Version = want.Group, want.Version
	}
	if said == want {
		return nil
	}
	if t, known := c.Scheme.AllKnownTypes()[said]; known {
		return check(t)
	}
	return nil
}
