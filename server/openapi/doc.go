// Package openapi serves the description of the API: /openapi/v3 with one document a group version, and
// /openapi/v2 as one large document, both as JSON and as protobuf.
//
// It owns the schemas of the built-in types, embedded as data that internal/gen makes from the published
// Go types. Paths are not stored: they follow from the table of resources that the server hands in. Custom
// resources come with a function that makes their schemas. A document is put together when it is first
// asked for, part by part, and only its compressed bytes are kept, up to a limit for all documents together.
package openapi

//go:generate go -C ../../internal/gen run .
