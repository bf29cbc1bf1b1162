package run

import (
	"reflect"
	"slices"
)

// Changes are the names of the settings that mean something else in other than in s, in the order of help. A value that is the default
// means the same as none.
func (s Said) Changes(other Said) (names []string) {
	for _, setting := range Settings() {
		if a, b := s[setting.Name], other[setting.Name]; !slices.Equal(a, b) && !setting.sameMeaning(a, b) {
			names = append(names, setting.Name)
		}
	}
	return names
}

// sameMeaning says that two values of the setting make the same config.
func (s Setting) sameMeaning(a, b []string) bool {
	x, y := Default(), Default()
	for _, one := range []struct {
		values []string
		into   *Config
	}{{a, &x}, {b, &y}} {
		if len(one.values) > 0 && s.Set(one.into, one.values) != nil {
			return false
		}
	}
	return reflect.DeepEqual(x, y)
}
