package run

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed features.txt
var featureList string

// gate is a feature that can be switched.
type gate struct {
	name   string
	on     bool // unless somebody says otherwise
	stage  string
	locked bool // it is as it is
}

// gates are all features that upstream knows. Flags written for it may name them.
func gates() (out []gate) {
	for line := range strings.Lines(featureList) {
		if words := strings.Fields(line); len(words) >= 3 && words[0] != "#" {
			out = append(out, gate{name: words[0], on: words[1] == "true", stage: words[2], locked: len(words) > 3})
		}
	}
	return out
}

// The gates that switch something here. All others are as they are by default, whatever is said.
const (
	compressing   = "APIResponseCompression"
	watchingLists = "WatchList"
	migrating     = "StorageVersionMigrator"
	topology      = "PodTopologyLabelsAdmission"
	splitLogs     = "PodLogsQuerySplitStreams"
	gangs         = "GenericWorkload"
	anyAlpha      = "AllAlpha"
	anyBeta       = "AllBeta"
)

// parseFeatures reads NAME=BOOL. Names and values are refused in upstream's words.
func parseFeatures(vs []string) (map[string]bool, error) {
	known, out := gates(), make(map[string]bool, len(vs))
	for _, v := range vs {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return nil, fmt.Errorf("missing bool value for %s", v)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("invalid value of %s=%s, err: %w", name, value, err)
		}
		at := slices.IndexFunc(known, func(g gate) bool { return g.name == name })
		if at < 0 {
			return nil, fmt.Errorf("unrecognized feature gate: %s", name)
		}
		if g := known[at]; g.locked && on != g.on {
			return nil, fmt.Errorf("cannot set feature gate %v to %v, feature is locked to %v", name, on, g.on)
		}
		out[name] = on
	}
	return out, nil
}

// feature says whether a feature is on.
func (c *Config) feature(name string) bool {
	if on, said := c.Features[name]; said {
		return on
	}
	for _, g := range gates() {
		if g.name != name {
			continue
		}
		if on, said := c.Features[anyBeta]; said && g.stage == "BETA" {
			return on
		}
		if on, said := c.Features[anyAlpha]; said && g.stage == "ALPHA" {
			return on
		}
		return g.on
	}
	return false
}

// idleFeatures are those that somebody wants otherwise than they are, and that switch nothing here.
func (c *Config) idleFeatures() (out []string) {
	for _, g := range gates() {
		switch g.name {
		case compressing, watchingLists, migrating, topology, splitLogs, gangs, anyBeta:
			continue
		}
		if on, said := c.Features[g.name]; said && on != g.on {
			out = append(out, fmt.Sprintf("%s=%t", g.name, on))
		}
	}
	return out
}
