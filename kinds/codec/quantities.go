package codec

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"proa.dev/kinds/quantity"
)

// checkQuantities returns an error for data with a quantity that would take too long to read.
func (c *Codec) checkQuantities(data []byte, m Media, want schema.GroupVersionKind, into runtime.Object) error {
	switch m {
	case Proto:
		var u runtime.Unknown
		if !quantity.Suspicious(data) || len(data) < len(envelope) || u.Unmarshal(data[len(envelope):]) != nil {
			return nil
		}
		return c.eachType(u.GroupVersionKind(), want, into, func(t reflect.Type) error { return c.messages.InProto(u.Raw, t) })
	case YAML:
		data = quantity.SuspiciousYAML(data)
	case JSON:
	}
	if !quantity.Suspicious(data) {
		return nil
	}
	said, err := json.DefaultMetaFactory.Interpret(data)
	if err != nil {
		return nil //nolint:nilerr // the decoder refuses it in its own words
	}
	return c.eachType(*said, want, into, func(t reflect.Type) error { return quantity.InJSON(data, t) })
}

// eachType calls check with every type that data may be decoded into. Data that says it is of another kind than the wanted one is
// decoded as that kind before it is refused.
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
