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
	// Custom says that the schema is not built in; strategic merge patches do not exist for it then.
	Custom bool
}

// Sub is one subresource. Its group, version and kind are those of its body; an empty group and version
// mean those of the resource. A kind that ends in "Options" is a connection, described by its parameters.
type Sub struct {
	Name                 string
	Group, Version, Kind string
	Verbs                []string
}

// Group is a group version that is not built in: that of custom resources, or of another server.
type Group struct {
	Group, Version string
	// Tag changes whenever anything else in the group changes.
	Tag string
	// Resources and Schemas describe custom resources. Schemas are of OpenAPI v3 and go by definition name,
	// which is the reversed group, the version and the kind: "com.example.v1.CronTab" and "…CronTabList".
	Resources []Resource
	Schemas   map[string]json.RawMessage
	// Document supplies the whole v3 document instead. It has no part in v2.
	Document func() ([]byte, error)
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
