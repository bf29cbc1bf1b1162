package openapi

import "encoding/json"

// Resource describes a built-in resource. Its paths and operations follow from it.
type Resource struct {
	Group, Version, Kind string
	Plural, Singular     string
	Namespaced           bool
	// Verbs are the verbs of discovery: create, delete, deletecollection, get, list, patch, update, watch.
	Verbs        []string
	Subresources []Sub
	// DeleteReturnsObject says that a delete responds with the deleted object instead of a Status.
	DeleteReturnsObject bool
}

// Sub describes a subresource. Its group, version and kind are those of its body; an empty group and version mean those
// of the resource. A kind that ends in "Options" is a connection, described by its parameters.
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

// Reference returns the reference to a schema.
func (d Dialect) Reference(name string) string {
	if d == V2 {
		return refPrefixV2 + name
	}
	return refPrefix + name
}

// Custom describes a custom resource in one version, or another resource of which no schema is published.
type Custom struct {
	Group, Version, Kind, ListKind, Plural string

	Namespaced    bool
	Status, Scale bool // the subresources that it has
	// Verbs are the verbs of discovery; nil for those of custom resources, which are the same for all.
	Verbs []string
	// Schema returns the schema of its objects, and List that of its lists, which refers to the schema of the objects
	// by its name. Both may refer to ObjectMeta and ListMeta of meta/v1 and to nothing else. They are called when a
	// document is built, and their results are not kept.
	Schema func(Dialect) json.RawMessage
	List   func(d Dialect, object string) json.RawMessage
}

// Group is a group version that is not built in: one of custom resources, or of an aggregated server.
type Group struct {
	Group, Version string
	// Tag changes whenever anything else in the group changes.
	Tag string
	// Custom returns the custom resources of the group version. It is called when a document is built.
	Custom func() []Custom
	// Document returns the whole v3 document of an aggregated server instead.
	Document func() ([]byte, error)
	// DocumentV2 returns the v2 document of the aggregated server; nil for none.
	DocumentV2 func() ([]byte, error)
}

// Options are the settings of New.
type Options struct {
	// Resources are the built-in resources.
	Resources []Resource
	// Groups returns the current groups that are not built in; nil means that there are none. It is called once for
	// each request and must be cheap.
	Groups func() []Group
	// Version is the version in the info block; upstream puts the version of the server here.
	Version string
	// CBOR adds the CBOR media types to requests and responses.
	CBOR bool
}
