package main

import (
	"fmt"
	"maps"
	"slices"
)

// difference is a value that differs between the two systems, or that only one of them has.
type difference struct {
	Scenario string
	Where    string // the snap and the object
	Path     string
	Upstream string
	Proa     string
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %s: %s: upstream %s, proa %s", d.Scenario, d.Where, d.Path, d.Upstream, d.Proa)
}

// compare finds all differences of two records of a scenario.
func compare(name string, up, our *record) (out []difference) {
	add := func(where, path string, a, b any) {
		out = append(out, difference{name, where, path, shown(a), shown(b)})
	}
	lists("answers", up.Answers, our.Answers, add)
	for i, s := range up.Snaps {
		if i >= len(our.Snaps) {
			add(s.Name, "snap", "taken", "not taken")
			break
		}
		o := our.Snaps[i]
		lists(s.Name+" events", s.Events, o.Events, add)
		keys := slices.Collect(maps.Keys(s.Objects))
		for k := range o.Objects {
			if s.Objects[k] == nil {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		for _, k := range keys {
			a, b := s.Objects[k], o.Objects[k]
			if len(a) != len(b) {
				add(s.Name, k, fmt.Sprintf("%d of them", len(a)), fmt.Sprintf("%d of them", len(b)))
				continue
			}
			for j := range a {
				walk(a[j], b[j], "", func(path string, x, y any) { add(s.Name+" "+k, path, x, y) })
			}
		}
	}
	return out
}

// lists compares two sets of lines.
func lists(where string, a, b []string, add func(where, path string, a, b any)) {
	for _, s := range a {
		if !slices.Contains(b, s) {
			add(where, s, "yes", "no")
		}
	}
	for _, s := range b {
		if !slices.Contains(a, s) {
			add(where, s, "no", "yes")
		}
	}
}

// walk calls add for each leaf that differs.
func walk(a, b any, path string, add func(path string, a, b any)) {
	switch x := a.(type) {
	case object:
		y, ok := b.(object)
		if !ok {
			break
		}
		keys := slices.Collect(maps.Keys(x))
		for k := range y {
			if _, has := x[k]; !has {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		for _, k := range keys {
			walk(x[k], y[k], path+"."+k, add)
		}
		return
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			key := fmt.Sprint(i)
			if t := text(x[i], "type"); t != "" {
				key = t
			}
			walk(x[i], y[i], path+"["+key+"]", add)
		}
		return
	}
	if flat(a) != flat(b) {
		add(path, a, b)
	}
}

func shown(v any) string {
	if v == nil {
		return "nothing"
	}
	if s, ok := v.(string); ok && s != "" {
		return s
	}
	return flat(v)
}
