// Package packagedata reads the embedded data that internal/gen makes of the published Go types: for each Go package one
// gzipped JSON file, an object with a definition for each type.
package packagedata

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Read returns the definitions of a Go package by their names, not decoded. For a package without a file it returns an
// empty map.
func Read(data embed.FS, pkg string) (map[string]json.RawMessage, error) {
	m := map[string]json.RawMessage{}
	packed, err := data.ReadFile("data/" + pkg + ".json.gz")
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the data of %s: %w", pkg, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("open the data of %s: %w", pkg, err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("read the data of %s: %w", pkg, err)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("decode the data of %s: %w", pkg, err)
	}
	return m, nil
}
