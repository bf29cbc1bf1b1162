package settings

import (
	"slices"
	"strings"
	"testing"
)

// TestEverySettingHasAGroup checks that every setting is in exactly one group.
func TestEverySettingHasAGroup(t *testing.T) {
	names := func(settings []Setting) (out []string) {
		for _, s := range settings {
			out = append(out, s.Name)
		}
		return out
	}
	all := names(All())
	var grouped, named []string
	for _, g := range Group(All()) {
		grouped = append(grouped, names(g.Settings)...)
	}
	for _, g := range settingGroups() {
		named = append(named, strings.Fields(g.names)...)
	}
	for _, name := range all {
		if n := len(slices.DeleteFunc(slices.Clone(grouped), func(s string) bool { return s != name })); n != 1 {
			t.Errorf("%s stands in %d groups", name, n)
		}
	}
	for _, name := range named {
		if !slices.Contains(all, name) {
			t.Errorf("a group names %s, which is no setting", name)
		}
	}
}
