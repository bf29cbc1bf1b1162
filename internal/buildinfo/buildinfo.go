// Package buildinfo tells from which source this program was built: the version that users see beside that of the
// Kubernetes API, which is the same for all builds.
package buildinfo

import (
	"runtime/debug"
)

// Info describes the build of this program.
type Info struct {
	// Version is the version of the module, or "(devel)".
	Version string
	// Commit is the commit from which the program was built, and Date its time as in RFC 3339; both are empty if the
	// program was not built in a git repository.
	Commit, Date string
	// Modified says that files differed from the commit.
	Modified bool
}

// Read returns the build information of this program.
func Read() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return from(info)
}

func from(info *debug.BuildInfo) Info {
	v := Info{Version: "(devel)"}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// Name returns a short name of the build: its version, or its commit where it has none.
func (i Info) Name() string {
	if i.Version != "(devel)" || i.Commit == "" {
		return i.Version
	}
	name := i.Commit[:min(12, len(i.Commit))]
	if i.Modified {
		name += "+dirty"
	}
	return name
}

// TreeState returns the state of the source tree in the words of /version: clean or dirty, and empty if it is unknown.
func (i Info) TreeState() string {
	switch {
	case i.Commit == "":
		return ""
	case i.Modified:
		return "dirty"
	}
	return "clean"
}
