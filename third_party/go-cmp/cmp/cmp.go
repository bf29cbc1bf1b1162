// Package cmp stands in for the package of the same name of github.com/google/go-cmp.
//
// The real one looks up methods by a name known only at run time. A program that links such a call loses
// the linker's dead-code elimination for every exported method, which costs proa tens of megabytes. The
// only code in the product that imports it is a self-check of etcd's storage backend, which wants to know
// whether two maps differ. This stand-in answers that and nothing finer.
package cmp

import (
	"fmt"
	"reflect"
)

// Option is accepted so that callers compile; it changes nothing.
type Option any

// Equal reports whether x and y are deeply equal.
func Equal(x, y any, _ ...Option) bool {
	return reflect.DeepEqual(x, y)
}

// Diff returns the empty string when x and y are deeply equal, and otherwise both values in full.
func Diff(x, y any, opts ...Option) string {
	if Equal(x, y, opts...) {
		return ""
	}
	return fmt.Sprintf("-%+v\n+%+v\n", x, y)
}
