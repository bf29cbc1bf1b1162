package plugins

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/schedule/framework"
)

// Points is a set of extension points, at which a configuration can enable and disable plugins.
type Points uint16

const (
	atPreEnqueue Points = 1 << iota
	atQueueSort
	atPreFilter
	atFilter
	atPostFilter
	atPreScore
	atScore
	atReserve
	atPermit
	atPreBind
	atBind
	atPostBind
	// AllPoints is the set of all extension points.
	AllPoints Points = 1<<iota - 1
)

// String returns the names of the extension points in a configuration.
func (at Points) String() string {
	var out []string
	for i, name := range []string{
		"preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "bind",
		"postBind",
	} {
		if at&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// pointSets returns the parts of a configuration for each extension point.
func pointSets(p *configv1.Plugins) map[Points]*configv1.PluginSet {
	return map[Points]*configv1.PluginSet{
		atPreEnqueue: &p.PreEnqueue, atQueueSort: &p.QueueSort, atPreFilter: &p.PreFilter, atFilter: &p.Filter, atPostFilter: &p.PostFilter,
		atPreScore: &p.PreScore, atScore: &p.Score, atReserve: &p.Reserve, atPermit: &p.Permit, atPreBind: &p.PreBind, atBind: &p.Bind,
		atPostBind: &p.PostBind,
	}
}

// choice is a plugin of a profile, with its weight and the extension points at which it is enabled.
type choice struct {
	Name   string
	weight int64
	At     Points
}

// Assemble makes the plugins of one profile. args has the arguments of plugins by name.
func Assemble(in *configv1.Plugins, args map[string]json.RawMessage, deps framework.Deps) ([]framework.Plugin, error) {
	all := append(defaultPlugins(), optionalPlugins()...)
	var out []framework.Plugin
	var at Points
	for _, c := range Choose(in, deps.Gangs) {
		i := slices.IndexFunc(all, func(k registration) bool { return k.name == c.Name })
		if i < 0 {
			return nil, fmt.Errorf("plugin %q does not exist", c.Name)
		}
		if slices.ContainsFunc(out, func(p framework.Plugin) bool { return p.Name == c.Name }) {
			return nil, fmt.Errorf("plugin %q already registered", c.Name)
		}
		pl, err := all[i].make(deps, args[c.Name])
		if err != nil {
			return nil, fmt.Errorf("initializing plugin %q: %w", c.Name, err)
		}
		if pl.Weight = c.weight; pl.Weight == 0 {
			pl.Weight = 1
		}
		switch c.Name {
		case "PrioritySort":
			at |= c.At & atQueueSort
		case "DefaultBinder":
			at |= c.At & atBind
		}
		out = append(out, restrictTo(pl, c.At))
	}
	if at&atQueueSort == 0 {
		return nil, fmt.Errorf("only one queue sort plugin required for profile, but got 0")
	}
	if at&atBind == 0 {
		return nil, fmt.Errorf("at least one bind plugin is needed for profile")
	}
	return out, nil
}

// Choose returns the plugins of a profile, with their weights and extension points.
func Choose(in *configv1.Plugins, gangs bool) []choice {
	all := defaultPlugins()
	if gangs {
		all = append(all, optionalPlugins()...)
	}
	if in == nil {
		in = &configv1.Plugins{}
	}
	chosen := merge(all, &in.MultiPoint)
	for at, set := range pointSets(in) {
		for i := range chosen {
			c := &chosen[i]
			if containsPlugin(set.Disabled, c.Name) || containsPlugin(set.Disabled, "*") {
				c.At &^= at
			}
		}
	}
	for _, at := range []Points{
		atPreEnqueue, atQueueSort, atPreFilter, atFilter, atPostFilter, atPreScore, atScore, atReserve, atPermit, atPreBind, atBind,
		atPostBind,
	} {
		for _, e := range pointSets(in)[at].Enabled {
			i := slices.IndexFunc(chosen, func(c choice) bool { return c.Name == e.Name })
			if i < 0 {
				chosen = append(chosen, choice{Name: e.Name})
				i = len(chosen) - 1
			}
			chosen[i].At |= at
			if at == atScore && e.Weight != nil && *e.Weight != 0 {
				chosen[i].weight = int64(*e.Weight)
			}
		}
	}
	return chosen
}

// merge applies the multi-point part of a configuration to the default plugins: disabled plugins are removed, default
// plugins that are enabled again keep their position and get the new weight, others are appended.
func merge(all []registration, set *configv1.PluginSet) []choice {
	var out []choice
	for _, k := range all {
		if containsPlugin(set.Disabled, "*") || containsPlugin(set.Disabled, k.name) {
			continue
		}
		out = append(out, choice{k.name, k.weight, AllPoints})
	}
	kept := len(out)
	for _, e := range set.Enabled {
		c := choice{Name: e.Name, At: AllPoints}
		if e.Weight != nil {
			c.weight = int64(*e.Weight)
		}
		if i := slices.IndexFunc(out[:kept], func(o choice) bool { return o.Name == e.Name }); i >= 0 {
			out[i] = c
		} else {
			out = append(out, c)
		}
	}
	return out
}

func containsPlugin(set []configv1.Plugin, name string) bool {
	return slices.ContainsFunc(set, func(p configv1.Plugin) bool { return p.Name == name })
}

// restrictTo returns a plugin that is enabled at some extension points only.
func restrictTo(p framework.Plugin, at Points) framework.Plugin {
	if at == AllPoints {
		return p
	}
	if at&atPreEnqueue == 0 {
		p.PreEnqueue = nil
	}
	if at&atPostFilter == 0 {
		p.PostFilter = nil
	}
	prepare := p.Prepare
	if prepare == nil {
		return p
	}
	p.Prepare = func(s *framework.Snapshot, pod *framework.PodInfo) framework.Prepared {
		out := prepare(s, pod)
		if at&atPreFilter == 0 {
			out.Reject, out.Nodes = nil, nil
		}
		if at&atFilter == 0 {
			out.Filter = nil
		}
		if at&atScore == 0 {
			out.Score, out.Normalize = nil, nil
		}
		if at&atReserve == 0 {
			out.Reserve, out.Unreserve = nil, nil
		}
		if at&atPermit == 0 {
			out.Permit = nil
		}
		if at&atPreBind == 0 {
			out.PreBind = nil
		}
		if at&atPostBind == 0 {
			out.PostBind = nil
		}
		return out
	}
	return p
}
