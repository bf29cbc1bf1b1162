// Package plugins is the registry of scheduler plugins, and assembles the plugins of a profile from a configuration.
// The plugins themselves are in the folders below it, grouped by what they decide.
package plugins

import (
	"encoding/json"

	"proa.dev/schedule/framework"
	"proa.dev/schedule/plugins/affinity"
	"proa.dev/schedule/plugins/basic"
	"proa.dev/schedule/plugins/devices"
	"proa.dev/schedule/plugins/fit"
	"proa.dev/schedule/plugins/gangs"
	"proa.dev/schedule/plugins/preemption"
	"proa.dev/schedule/plugins/spread"
	"proa.dev/schedule/plugins/volumes"
)

// constructor makes a plugin from its arguments in the configuration, which may be empty.
type constructor func(framework.Deps, json.RawMessage) (framework.Plugin, error)

// registration is a plugin that a configuration can name.
type registration struct {
	name   string
	weight int64 // the weight in the default profile
	make   constructor
}

// defaultPlugins returns the plugins of the default profile, in their order.
func defaultPlugins() []registration {
	withoutArgs := func(f func() framework.Plugin) constructor {
		return func(framework.Deps, json.RawMessage) (framework.Plugin, error) { return f(), nil }
	}
	return []registration{
		{"SchedulingGates", 0, withoutArgs(basic.SchedulingGates)},
		{"PrioritySort", 0, withoutArgs(basic.PrioritySort)},
		{"NodeName", 0, withoutArgs(basic.NodeName)},
		{"NodeUnschedulable", 0, withoutArgs(basic.NodeUnschedulable)},
		{"TaintToleration", 3, withoutArgs(basic.TaintToleration)},
		{"NodeAffinity", 2, affinity.NewNodeAffinity},
		{"NodePorts", 0, withoutArgs(basic.NodePorts)},
		{"NodeResourcesFit", 1, fit.New},
		{"VolumeRestrictions", 0, withoutArgs(volumes.NewRestrictions)},
		{"NodeVolumeLimits", 0, withoutArgs(volumes.NewLimits)},
		{"VolumeBinding", 0, volumes.NewBinding},
		{"VolumeZone", 0, withoutArgs(volumes.NewZone)},
		{"PodTopologySpread", 2, spread.New},
		{"InterPodAffinity", 2, affinity.NewPodAffinity},
		{"DynamicResources", 2, devices.New},
		{"DefaultPreemption", 0, preemption.New},
		{"NodeResourcesBalancedAllocation", 1, fit.NewBalancedAllocation},
		{"ImageLocality", 1, withoutArgs(basic.ImageLocality)},
		{"DefaultBinder", 0, withoutArgs(basic.DefaultBinder)},
		{"NodeDeclaredFeatures", 0, withoutArgs(basic.NodeDeclaredFeatures)},
	}
}

// optionalPlugins returns the plugins that are only used by profiles that name them. GangScheduling is also added to
// the default profile if Deps.Gangs is set.
func optionalPlugins() []registration {
	return []registration{
		{"GangScheduling", 0, func(deps framework.Deps, _ json.RawMessage) (framework.Plugin, error) { return gangs.New(deps), nil }},
	}
}
