// Package defs is where openapi-gen writes the definitions that emit compiles; they are not kept.
package defs
