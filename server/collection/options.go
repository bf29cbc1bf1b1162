// Package collection reads lists of objects: which objects a list, watch or deletecollection selects, pages of them
// from the cache or from an older revision in the store, and continue tokens.
package collection

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/kinds/kind"
	"proa.dev/server/apistatus"
	"proa.dev/server/state"
)

// Options select the objects that list, watch and deletecollection see, and at which revision. They are the ListOptions
// of the API, parsed.
type Options struct {
	Labels          labels.Selector
	Fields          fields.Selector
	Limit           int64
	Continue        string
	ResourceVersion string
	Match           metav1.ResourceVersionMatch
	TimeoutSeconds  int64
	Bookmarks       bool  // allowWatchBookmarks
	Initial         *bool // sendInitialEvents; nil when the client did not say
}

// CheckFields returns the selector, or an error when it names a field by which objects of this kind cannot be selected.
func CheckFields(def *kind.Def, sel fields.Selector) (fields.Selector, error) {
	return sel.Transform(func(label, value string) (string, string, error) {
		if _, ok := def.Fields[label]; ok {
			return label, value, nil
		}
		if def.FieldError != "" {
			return "", "", apistatus.BadRequest(def.FieldError, label)
		}
		known := `"metadata.name", "metadata.namespace"`
		return "", "", apistatus.BadRequest("%q is not a known field selector: only %s", label, known)
	})
}

// Filter returns the label and field selectors as a test of one object in the version of def; nil when all objects
// pass.
func (o *Options) Filter(def *kind.Def) func(kind.Object) bool {
	byLabel, byField := o.Labels, o.Fields
	if byLabel != nil && byLabel.Empty() {
		byLabel = nil
	}
	var wanted fields.Requirements
	if byField != nil {
		wanted = byField.Requirements()
	}
	if byLabel == nil && len(wanted) == 0 {
		return nil
	}
	return func(obj kind.Object) bool {
		for _, w := range wanted {
			if (def.Fields[w.Field](obj) == w.Value) == (w.Operator == "!=") {
				return false
			}
		}
		return byLabel == nil || byLabel.Matches(labels.Set(obj.GetLabels()))
	}
}

// ExactField returns the value that the field selector requires of a field, or "" when it requires none.
func (o *Options) ExactField(label string) string {
	if o.Fields == nil {
		return ""
	}
	v, _ := o.Fields.RequiresExactMatch(label)
	return v
}

// wantsExact says that a list shows the state at exactly the resourceVersion it names: with resourceVersionMatch=Exact,
// or without resourceVersionMatch when it has a limit.
func (o *Options) wantsExact() bool {
	if o.ResourceVersion == "" || o.ResourceVersion == "0" {
		return false
	}
	return o.Match == metav1.ResourceVersionMatchExact || o.Match == "" && o.Limit > 0
}

// StoredFilter makes a test of objects in the version of def a test of objects in their storage version.
func StoredFilter(def *kind.Def, keep func(kind.Object) bool) func(kind.Object) bool {
	if keep == nil || def.Hub == nil {
		return keep
	}
	return func(o kind.Object) bool { return keep(def.FromHub(o)) }
}

// WarnUnreadable warns the client of a list or a watch of the objects that it does not see because they cannot be
// decoded. A client with a field selector learns only how many there are: the selector might not have matched them.
func (o *Options) WarnUnreadable(keys []string, warn func(texts ...string)) {
	if len(keys) == 0 {
		return
	}
	names := ""
	if f := o.Fields; f == nil || f.Empty() {
		names = ": " + strings.Join(keys[:min(len(keys), state.MaxNamedKeys)], ", ")
		if more := len(keys) - state.MaxNamedKeys; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
	}
	warn(fmt.Sprintf("%d stored objects cannot be decoded and are left out%s", len(keys), names))
}
