package openapi

import "encoding/json"

// Resource is what the paths and operations of one resource follow from.
type Resource struct {
	Group, Version, Kind string
	Plural, Singular     string
	Namespaced           bool
	// Verbs are those of discovery: create, delete, deletecollection, get, list, patch, update, watch.
	Verbs        []string
	Subresources []Sub
	// DeleteReturnsObject says that a delete answers with the deleted object instead of a Status.
	DeleteReturnsObject bool
}

// Sub is one subresource. Its group, version and kind are those of its body; an empty group and version
// mean those of the resource. A kind that ends in "Options" is a connection, described by its parameters.
type Sub struct {
	Name                 string
	Group, Version, Kind string
	Verbs                []string
}

// Dialect is a version of OpenAPI, as far as schemas are written differently in it.
type Dialect int

const (
	// V2 has schemas under #/definitions/ and knows neither nullable nor alternatives.
	V2 Dialect = 2
	// V3 has schemas under #/components/schemas/.
	V3 Dialect = 3
)

// Reference is how a schema refers to another one.
func (d Dialect) Reference(name string) string {
	if d == V2 {
		return refPrefixV2 + name
	}
	return refPrefix + name
}

// Custom is a custom resource in one version. All custom resources have the same verbs.
type Custom struct {
	Group, Version, Kind, ListKind, Plural string

	Namespaced    bool
	Status, Scale bool // the subresources that it has
	// Schema makes the schema of its objects, and List that of lists of them, which refers to the schema of
	// the objects by its name. They may refer to ObjectMeta and ListMeta of meta/v1 and to nothing else. They
	// are called when a document is made, and what they return is not kept.
	Schema func(Dialect) json.RawMessage
	List   func(d Dialect, object string) json.RawMessage
}

// Group is a group version that is not built in: that of custom resources, or of another server.
type Group struct {
	Group, Version string
	// Tag changes whenever anything else in the group changes.
	Tag string
	// Custom returns the custom resources of the group version. It is called when a document is made.
	Custom func() []Custom
	// Document supplies the whole v3 document instead.
	Document func() ([]byte, error)
	// DocumentV2 supplies the v2 document of the server that has the group version; nil for none.
	DocumentV2 func() ([]byte, error)
}

// Options say what to describe.
type Options struct {
	// Resources are the built-in resources.
	Resources []Resource
	// Groups returns the other groups of this moment; nil means that there are none. It is called once a
	// request and must be cheap.
	Groups func() []Group
	// Version is the version in the info block; upstream has the version of the server here.
	Version string
	// CBOR adds the CBOR media types to requests and responses.
	CBOR bool
}
