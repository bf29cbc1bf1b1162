package customresource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"proa.dev/kinds/kind"
)

// ageColumn returns the column of definitions that name none.
func ageColumn() apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{
		Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		JSONPath: ".metadata.creationTimestamp",
	}
}

// scaleColumns returns the columns of a Scale.
func scaleColumns(current bool) []apiextensionsv1.CustomResourceColumnDefinition {
	out := []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Desired", Type: "integer", Description: "Number of desired replicas", JSONPath: ".spec.replicas"},
	}
	if current {
		out = append(out, apiextensionsv1.CustomResourceColumnDefinition{Name: "Available", Type: "integer",
			Description: "Number of actual replicas", JSONPath: ".status.replicas"})
	}
	return append(out, ageColumn())
}

// columns returns the headings of a table, and a function that makes the row of an object. The paths are parsed when
// the first row is made.
func columns(own []apiextensionsv1.CustomResourceColumnDefinition) ([]metav1.TableColumnDefinition, func(kind.Object) []any) {
	if len(own) == 0 {
		own = []apiextensionsv1.CustomResourceColumnDefinition{ageColumn()}
	}
	headings := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]}}
	for _, c := range own {
		text := c.Description
		if text == "" {
			text = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		headings = append(headings, metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: text,
			Priority: c.Priority})
	}
	paths := sync.OnceValue(func() []*jsonpath.JSONPath { return parsePaths(own) })
	return headings, func(o kind.Object) []any {
		row := []any{o.GetName()}
		content := contentOf(o)
		for i, p := range paths() {
			row = append(row, cell(p, own[i].Type, content))
		}
		return row
	}
}

// parsePaths parses the paths of columns; nil stands for an invalid one.
func parsePaths(own []apiextensionsv1.CustomResourceColumnDefinition) []*jsonpath.JSONPath {
	out := make([]*jsonpath.JSONPath, len(own))
	for i, c := range own {
		p := jsonpath.New(c.Name).AllowMissingKeys(true)
		if err := p.Parse(fmt.Sprintf("{%s}", c.JSONPath)); err == nil {
			out[i] = p
		}
	}
	return out
}

func contentOf(o kind.Object) map[string]any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.Object
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil
	}
	return content
}

// cell returns the value at a path, in the type of its column; nil for none.
func cell(p *jsonpath.JSONPath, columnType string, content map[string]any) any {
	if p == nil {
		return nil
	}
	results, err := p.FindResults(content)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil
	}
	value := results[0][0].Interface()
	if columnType == "string" {
		var text bytes.Buffer
		if err := p.PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}); err != nil {
			return nil
		}
		return text.String()
	}
	return cellOf(columnType, value)
}

func cellOf(columnType string, value any) any {
	switch v := value.(type) {
	case int64:
		switch columnType {
		case "integer":
			return v
		case "number":
			return float64(v)
		}
	case float64:
		switch columnType {
		case "integer":
			return int64(v)
		case "number":
			return v
		}
	case json.Number:
		if n, err := v.Int64(); columnType == "integer" && err == nil {
			return n
		}
		if n, err := v.Float64(); columnType == "number" && err == nil {
			return n
		}
	case bool:
		if columnType == "boolean" {
			return v
		}
	case string:
		if columnType != "date" {
			return nil
		}
		var at metav1.Time
		if err := at.UnmarshalQueryParameter(v); err != nil {
			return "<invalid>"
		}
		return metatable.ConvertToHumanReadableDateType(at)
	}
	return nil
}
