// Package openapi serves the OpenAPI description of the API: /openapi/v3 with one document for each group version, and
// /openapi/v2 as one large document, both as JSON and as protobuf.
//
// It owns the schemas of the built-in types, which are embedded as data that internal/gen makes from the published Go
// types. Paths are not stored: they follow from the table of resources that the server passes in. The schemas of custom
// resources come from a function. A document is built when it is first requested, part by part, and only its compressed
// bytes are cached, up to a limit for all documents together.
package openapi

//go:generate go -C ../../internal/gen run .
