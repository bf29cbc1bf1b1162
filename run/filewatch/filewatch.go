// Package filewatch notices changes of configuration files by reading them again.
package filewatch

import (
	"bytes"
	"os"
)

// File is a file whose changes are applied.
type File struct {
	Path  string
	Text  []byte // as it was last read; nil makes the next read a change
	Apply func() error
}

// New returns the file at a path. Its present content does not count as a change.
func New(path string, apply func() error) *File {
	w := &File{Path: path, Apply: apply}
	w.Changed()
	return w
}

// Changed tells whether the content differs from the last time it was read. A file that cannot be read has not changed.
func (w *File) Changed() bool {
	if w.Path == "" {
		return false
	}
	text, err := os.ReadFile(w.Path)
	if err != nil || bytes.Equal(text, w.Text) {
		return false
	}
	w.Text = text
	return true
}
