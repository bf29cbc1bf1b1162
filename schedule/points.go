package schedule

import (
	"encoding/json"
	"fmt"
	"slices"

	configv1 "k8s.io/kube-scheduler/config/v1"
)

// points is a set of the places at which a configuration can turn a plugin on and off.
type points uint16

const (
	atPreEnqueue points = 1 << iota
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
	everywhere points = 1<<iota - 1
)

// pointSets are the parts of a configuration that are about one point.
func pointSets(p *configv1.Plugins) map[points]*configv1.PluginSet {
	return map[points]*configv1.PluginSet{
		atPreEnqueue: &p.PreEnqueue, atQueueSort: &p.QueueSort, atPreFilter: &p.PreFilter, atFilter: &p.Filter, atPostFilter: &p.PostFilter,
		atPreScore: &p.PreScore, atScore: &p.Score, atReserve: &p.Reserve, atPermit: &p.Permit, atPreBind: &p.PreBind, atBind: &p.Bind,
		atPostBind: &p.PostBind,
	}
}

// choice is a plugin of a profile before it is made.
type choice struct {
	name   string
	weight int64
	at     points
}

// assemble makes the plugins of one profile.
func assemble(in *configv1.Plugins, args map[string]json.RawMessage, deps Deps) ([]Plugin, error) {
	all := registry()
	if deps.Gangs {
		all = append(all, optional()...)
	}
	if in == nil {
		in = &configv1.Plugins{}
	}
	var out []Plugin
	var at points
	chosen := choose(all, in)
	all = append(all, optional()...)
	for _, c := range chosen {
		i := slices.IndexFunc(all, func(k known) bool { return k.name == c.name })
		if i < 0 {
			return nil, fmt.Errorf("plugin %q does not exist", c.name)
		}
		if slices.ContainsFunc(out, func(p Plugin) bool { return p.Name == c.name }) {
			return nil, fmt.Errorf("plugin %q already registered", c.name)
		}
		pl, err := all[i].make(deps, args[c.name])
		if err != nil {
			return nil, fmt.Errorf("initializing plugin %q: %w", c.name, err)
		}
		if pl.Weight = c.weight; pl.Weight == 0 {
			pl.Weight = 1
		}
		switch c.name {
		case "PrioritySort":
			at |= c.at & atQueueSort
		case "DefaultBinder":
			at |= c.at & atBind
		}
		out = append(out, pl.only(c.at))
	}
	if at&atQueueSort == 0 {
		return nil, fmt.Errorf("only one queue sort plugin required for profile, but got 0")
	}
	if at&atBind == 0 {
		return nil, fmt.Errorf("at least one bind plugin is needed for profile")
	}
	return out, nil
}

// choose says which plugins a profile has, where, and with what weights.
func choose(all []known, in *configv1.Plugins) []choice {
	chosen := merge(all, &in.MultiPoint)
	for at, set := range pointSets(in) {
		for i := range chosen {
			c := &chosen[i]
			if names(set.Disabled, c.name) || names(set.Disabled, "*") {
				c.at &^= at
			}
		}
	}
	for _, at := range []points{
		atPreEnqueue, atQueueSort, atPreFilter, atFilter, atPostFilter, atPreScore, atScore, atReserve, atPermit, atPreBind, atBind, atPostBind,
	} {
		for _, e := range pointSets(in)[at].Enabled {
			i := slices.IndexFunc(chosen, func(c choice) bool { return c.name == e.Name })
			if i < 0 {
				chosen = append(chosen, choice{name: e.Name})
				i = len(chosen) - 1
			}
			chosen[i].at |= at
			if at == atScore && e.Weight != nil && *e.Weight != 0 {
				chosen[i].weight = int64(*e.Weight)
			}
		}
	}
	return chosen
}

// merge changes the default plugins as the configuration says: those it turns off go, those it names anew stay in their place
// with the new weight, the others come last.
func merge(all []known, set *configv1.PluginSet) []choice {
	var out []choice
	for _, k := range all {
		if names(set.Disabled, "*") || names(set.Disabled, k.name) {
			continue
		}
		out = append(out, choice{k.name, k.weight, everywhere})
	}
	kept := len(out)
	for _, e := range set.Enabled {
		c := choice{name: e.Name, at: everywhere}
		if e.Weight != nil {
			c.weight = int64(*e.Weight)
		}
		if i := slices.IndexFunc(out[:kept], func(o choice) bool { return o.name == e.Name }); i >= 0 {
			out[i] = c
		} else {
			out = append(out, c)
		}
	}
	return out
}

func names(set []configv1.Plugin, name string) bool {
	return slices.ContainsFunc(set, func(p configv1.Plugin) bool { return p.Name == name })
}

// only is the plugin at some points alone.
func (p Plugin) only(at points) Plugin {
	if at == everywhere {
		return p
	}
	if at&atPreEnqueue == 0 {
		p.Gate = nil
	}
	if at&atPostFilter == 0 {
		p.Rescue = nil
	}
	prepare := p.Prepare
	if prepare == nil {
		return p
	}
	p.Prepare = func(s *Snapshot, pod *PodInfo) Prepared {
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
