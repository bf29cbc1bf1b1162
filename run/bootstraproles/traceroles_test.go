package bootstraproles

import (
	"slices"
	"testing"

	"proa.dev/kinds/tracekind"
	"proa.dev/kinds/whykind"
)

// TestTraceRolesGrantWhatIsServed checks that the roles for traces have every verb that their kinds serve, and no other: one that is not
// served is answered with 405.
func TestTraceRolesGrantWhatIsServed(t *testing.T) {
	roles, _ := TraceRoles()
	granted := map[string][]string{}
	for _, role := range roles {
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				granted[resource] = append(granted[resource], rule.Verbs...)
			}
		}
	}
	all := append(tracekind.All(nil), whykind.All(nil)...)
	for _, def := range all {
		if got := granted[def.Plural]; !slices.Equal(got, def.Verbs) {
			t.Errorf("%s: the roles grant %v, and %v are served", def.Plural, got, def.Verbs)
		}
	}
	if len(granted) != len(all) {
		t.Errorf("the roles are about %v", granted)
	}
}
