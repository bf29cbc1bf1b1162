package settings

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed features.txt
var featureList string

// gate is a feature gate of upstream.
type gate struct {
	name   string
	on     bool // the default
	stage  string
	locked bool // it cannot be changed
}

// gates returns all feature gates of upstream, so that flags written for it are understood.
func gates() (out []gate) {
	for line := range strings.Lines(featureList) {
		if words := strings.Fields(line); len(words) >= 3 && words[0] != "#" {
			out = append(out, gate{name: words[0], on: words[1] == "true", stage: words[2], locked: len(words) > 3})
		}
	}
	return out
}

// The gates that switch something here. All others are as they are by default, whatever is given.
const (
	ResponseCompression     = "APIResponseCompression"
	WatchList               = "WatchList"
	StorageVersionMigration = "StorageVersionMigrator"
	PodTopologyLabels       = "PodTopologyLabelsAdmission"
	SplitLogStreams         = "PodLogsQuerySplitStreams"
	GangScheduling          = "GenericWorkload"
	anyAlpha                = "AllAlpha"
	anyBeta                 = "AllBeta"
)

// parseFeatures parses NAME=BOOL. Its errors are upstream's.
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

// FeatureEnabled tells whether a feature is enabled.
func (c *Config) FeatureEnabled(name string) bool {
	if on, given := c.Features[name]; given {
		return on
	}
	for _, g := range gates() {
		if g.name != name {
			continue
		}
		if on, given := c.Features[anyBeta]; given && g.stage == "BETA" {
			return on
		}
		if on, given := c.Features[anyAlpha]; given && g.stage == "ALPHA" {
			return on
		}
		return g.on
	}
	return false
}

// FeaturesWithoutEffect returns the feature gates that were given another value than the default and that this server
// does not know how to switch.
func (c *Config) FeaturesWithoutEffect() (out []string) {
	for _, g := range gates() {
		switch g.name {
		case ResponseCompression, WatchList, StorageVersionMigration, PodTopologyLabels, SplitLogStreams, GangScheduling, anyBeta:
			continue
		}
		if on, given := c.Features[g.name]; given && on != g.on {
			out = append(out, fmt.Sprintf("%s=%t", g.name, on))
		}
	}
	return out
}
