// Package events holds the kinds of the events.k8s.io group.
package events

import "proa.dev/kinds/kind"

// All lists the kinds of the group. Events are stored in the version of the core group, which is among the hubs.
func All(hubs []*kind.Def) []*kind.Def {
	for _, hub := range hubs {
		if hub.Group == "" && hub.Plural == "events" {
			return []*kind.Def{Events(hub)}
		}
	}
	return nil
}
