package buildinfo

import (
	"runtime/debug"
	"testing"
)

// TestBuildIsNamed checks what is read from the build information of a program, and how the build is called.
func TestBuildIsNamed(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	settings := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.time", Value: "2026-11-19T23:15:59Z"},
			{Key: "vcs.modified", Value: modified}}
	}
	for _, c := range []struct {
		build             debug.BuildInfo
		name, tree, since string
	}{
		{debug.BuildInfo{}, "(devel)", "", ""},
		{debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings("true")}, "0123456789ab+dirty", "dirty",
			"2026-11-19T23:15:59Z"},
		{debug.BuildInfo{Main: debug.Module{Version: "v0.4.0"}, Settings: settings("false")}, "v0.4.0", "clean", "2026-11-19T23:15:59Z"},
	} {
		got := from(&c.build)
		if got.Name() != c.name || got.TreeState() != c.tree || got.Date != c.since || c.tree != "" && got.Commit != commit {
			t.Errorf("%+v is %q, %q of %q", got, got.Name(), got.TreeState(), got.Date)
		}
	}
}
