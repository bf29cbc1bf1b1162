// Package manifest reads the objects that tests install from files of YAML or JSON, as controller-gen and kustomize write them.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Document is one object of a file.
type Document struct {
	metav1.TypeMeta
	File string
	Text []byte
}

// Decode reads the document into an object. Fields that the object does not have are ignored.
func (d Document) Decode(into any) error {
	if err := yaml.Unmarshal(d.Text, into); err != nil {
		return fmt.Errorf("%s: %w", d.File, err)
	}
	return nil
}

// Documents returns the objects of a file, or of the files in a folder whose names end in .yaml, .yml or .json. Folders in the folder are
// left out.
func Documents(path string) (out []Document, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if info.IsDir() {
		files = nil
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	for _, file := range files {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
			continue
		}
		if out, err = appendFile(out, file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return out, nil
}

// appendFile adds the documents of one file that name a kind.
func appendFile(out []Document, file string) ([]Document, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		text, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		d := Document{File: file, Text: text}
		if err := yaml.Unmarshal(text, &d.TypeMeta); err != nil {
			return nil, err
		}
		if d.Kind != "" {
			out = append(out, d)
		}
	}
}

// Definitions returns the CustomResourceDefinitions in files and folders. If several have the same name, the last one counts.
func Definitions(paths ...string) (out []*apiextensionsv1.CustomResourceDefinition, err error) {
	for _, path := range paths {
		documents, err := Documents(path)
		if err != nil {
			return nil, err
		}
		for _, d := range documents {
			if d.Kind != "CustomResourceDefinition" {
				continue
			}
			definition := &apiextensionsv1.CustomResourceDefinition{}
			if err := d.Decode(definition); err != nil {
				return nil, err
			}
			out = slices.DeleteFunc(out, func(o *apiextensionsv1.CustomResourceDefinition) bool { return o.Name == definition.Name })
			out = append(out, definition)
		}
	}
	return out, nil
}
