package schedule

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/client"
	"proa.dev/schedule/device"
)

// Deps is what plugins may need that act, and do not only decide.
type Deps struct {
	Client client.Client
	Log    *slog.Logger
	// Views are those of the resources that plugins read, open when the first pod is prepared.
	Views Cluster
	// Events reports what happens to pods.
	Events *events
	// Metrics are the scheduler's numbers.
	Metrics *Metrics
	// Activate brings pods that wait to be tried now.
	Activate func(...types.UID)
	// Go runs something in the background. Its context ends with the scheduler.
	Go func(func(context.Context))
	// Select evaluates the selectors of devices; nil means that nobody can.
	Select device.Selector
	// Gangs says that the default profile knows gangs.
	Gangs bool
	// Elsewhere are the resources that extenders see to, and nobody here.
	Elsewhere []string
}

// maker makes a plugin from the arguments in the configuration, which are empty if there are none.
type maker func(Deps, json.RawMessage) (Plugin, error)

// known is a plugin that configurations can name.
type known struct {
	name   string
	weight int64 // in the default profile
	make   maker
}

// registry are the plugins, in the order of the default profile.
func registry() []known {
	plain := func(f func() Plugin) maker {
		return func(Deps, json.RawMessage) (Plugin, error) { return f(), nil }
	}
	return []known{
		{"SchedulingGates", 0, plain(SchedulingGates)},
		{"PrioritySort", 0, plain(PrioritySort)},
		{"NodeName", 0, plain(NodeName)},
		{"NodeUnschedulable", 0, plain(NodeUnschedulable)},
		{"TaintToleration", 3, plain(TaintToleration)},
		{"NodeAffinity", 2, makeNodeAffinity},
		{"NodePorts", 0, plain(NodePorts)},
		{"NodeResourcesFit", 1, makeFit},
		{"VolumeRestrictions", 0, plain(VolumeRestrictions)},
		{"NodeVolumeLimits", 0, plain(VolumeLimits)},
		{"VolumeBinding", 0, makeVolumeBinding},
		{"VolumeZone", 0, plain(VolumeZone)},
		{"PodTopologySpread", 2, makeSpread},
		{"InterPodAffinity", 2, makePodAffinity},
		{"DynamicResources", 2, makeDynamicResources},
		{"DefaultPreemption", 0, makePreemption},
		{"NodeResourcesBalancedAllocation", 1, makeBalance},
		{"ImageLocality", 1, plain(ImageLocality)},
		{"DefaultBinder", 0, plain(DefaultBinder)},
		{"NodeDeclaredFeatures", 0, plain(NodeDeclaredFeatures)},
	}
}

// optional are plugins that configurations can name, and that are in no other profile unless Config.Gangs says so.
func optional() []known {
	return []known{
		{"GangScheduling", 0, func(deps Deps, _ json.RawMessage) (Plugin, error) { return GangScheduling(deps), nil }},
	}
}

func makeNodeAffinity(_ Deps, raw json.RawMessage) (Plugin, error) {
	var args configv1.NodeAffinityArgs
	if err := decodeArgs(raw, &args); err != nil {
		return Plugin{}, err
	}
	return NodeAffinity(args.AddedAffinity)
}

func makeFit(deps Deps, raw json.RawMessage) (Plugin, error) {
	var args configv1.NodeResourcesFitArgs
	if err := decodeArgs(raw, &args); err != nil {
		return Plugin{}, err
	}
	defaultFit(&args)
	if err := checkFit(&args).ToAggregate(); err != nil {
		return Plugin{}, err
	}
	strategy := Strategy{Type: StrategyType(args.ScoringStrategy.Type), Resources: weights(args.ScoringStrategy.Resources)}
	if ratio := args.ScoringStrategy.RequestedToCapacityRatio; ratio != nil {
		for _, p := range ratio.Shape {
			// The file speaks of 0 to 10.
			strategy.Shape = append(strategy.Shape, Point{int64(p.Utilization), int64(p.Score) * (MaxScore / topShapeScore)})
		}
	}
	return Fit(FitArgs{Ignored: slices.Concat(args.IgnoredResources, deps.Elsewhere), IgnoredGroups: args.IgnoredResourceGroups, Strategy: strategy, Classes: deps.Views}), nil
}

func makeBalance(_ Deps, raw json.RawMessage) (Plugin, error) {
	var args configv1.NodeResourcesBalancedAllocationArgs
	if err := decodeArgs(raw, &args); err != nil {
		return Plugin{}, err
	}
	defaultWeights(args.Resources)
	if err := checkBalance(&args).ToAggregate(); err != nil {
		return Plugin{}, err
	}
	return BalancedAllocation(weights(args.Resources)), nil
}
