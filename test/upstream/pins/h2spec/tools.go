//go:build tools

// Package h2spec pins the program that checks servers of HTTP/2 against its specification.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
