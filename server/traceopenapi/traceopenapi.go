// Package traceopenapi makes the OpenAPI descriptions of the kinds of the group trace.proa.dev, from their Go types and from a text for
// each field. With them "kubectl explain traces" answers.
package traceopenapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/nodereport"
	"proa.dev/kinds/whykind"
	"proa.dev/server/openapi"
	"proa.dev/trace"
)

// describedType returns the Go type of the objects of a resource of the group; nil if it is not described.
func describedType(plural string) reflect.Type {
	switch plural {
	case "traces":
		return reflect.TypeFor[trace.Trace]()
	case "wiretraces":
		return reflect.TypeFor[trace.WireTrace]()
	case "explanations":
		return reflect.TypeFor[whykind.Explanation]()
	case "schedulingattempts":
		return reflect.TypeFor[whykind.SchedulingAttempt]()
	case "nodereports":
		return reflect.TypeFor[nodereport.NodeReport]()
	}
	return nil
}

// Group describes those of the descriptors that are of the group. It makes all schemas once, for its tag, and again when a document is
// built.
func Group(defs []*kind.Def) openapi.Group {
	customs := func() (out []openapi.Custom) {
		for _, d := range defs {
			if typ := describedType(d.Plural); d.Group == trace.Group && d.Version == trace.Version && typ != nil {
				out = append(out, custom(d, typ))
			}
		}
		return out
	}
	sum := sha256.New()
	for _, c := range customs() {
		fmt.Fprintln(sum, c.Kind, c.Verbs, string(c.Schema(openapi.V3)))
	}
	return openapi.Group{Group: trace.Group, Version: trace.Version, Tag: hex.EncodeToString(sum.Sum(nil)), Custom: customs}
}

// custom describes one resource.
func custom(d *kind.Def, typ reflect.Type) openapi.Custom {
	list := d.Kind + "List"
	return openapi.Custom{
		Group: d.Group, Version: d.Version, Kind: d.Kind, ListKind: list, Plural: d.Plural, Namespaced: d.Scope == kind.Namespaced,
		Verbs: d.Verbs,
		Schema: func(dialect openapi.Dialect) json.RawMessage {
			s := newDescriber(dialect).object(typ)
			s["description"] = descriptions()[d.Kind]
			return encode(s, d, d.Kind)
		},
		List: func(dialect openapi.Dialect, object string) json.RawMessage {
			b := newDescriber(dialect)
			s := fields{"type": "object", "required": []string{"items"}, "description": list + " is a list of " + d.Kind, "properties": fields{
				"items": fields{"type": "array", "description": "The " + d.Plural + " of the list.",
					"items": fields{"$ref": dialect.Reference(object)}},
				"metadata": b.reference("ListMeta", "Metadata of the list."),
			}}
			b.addTypes(s)
			return encode(s, d, list)
		},
	}
}

// encode adds the kind to a schema, and encodes it.
func encode(s fields, d *kind.Def, name string) json.RawMessage {
	s["x-kubernetes-group-version-kind"] = []fields{{"group": d.Group, "version": d.Version, "kind": name}}
	raw, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(`{"type":"object"}`) // one schema that cannot be encoded must not make the document fail
	}
	return raw
}
