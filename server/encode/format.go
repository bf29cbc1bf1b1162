package encode

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/codec"
)

// Shape is what of an object a client wants to see.
type Shape uint8

// The shapes of an answer.
const (
	Whole        Shape = iota // the object itself
	MetadataOnly              // its metadata, as PartialObjectMetadata
	Table                     // a row of a Table
)

// Format is how an answer is encoded. It is comparable: clients with equal formats get the same bytes.
type Format struct {
	Media codec.Media
	Shape Shape
	// Include says what a row of a Table has besides its cells.
	Include metav1.IncludeObjectPolicy
	// Group and Version are the served version of the objects.
	Group, Version string
	// Meta is the version of the Table or the metadata; empty for v1.
	Meta   string
	Pretty bool
	// MetadataList says that the client asked for the metadata of a list, not of one object.
	MetadataList bool
	// ForNodes says that objects are shown in the form that their kind has for nodes.
	ForNodes bool
}
