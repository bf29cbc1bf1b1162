package settings

import (
	"reflect"
	"slices"
)

// Changes returns the names of the settings that have another effect in other than in s, in the order of help. Giving
// the default has the same effect as giving nothing.
func (s Values) Changes(other Values) (names []string) {
	for _, setting := range All() {
		if a, b := s[setting.Name], other[setting.Name]; !slices.Equal(a, b) && !setting.sameMeaning(a, b) {
			names = append(names, setting.Name)
		}
	}
	return names
}

// sameMeaning tells whether two values of the setting have the same effect.
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
