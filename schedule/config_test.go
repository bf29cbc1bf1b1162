package schedule

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/internal/textcase"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/plugins"
	"proa.dev/schedule/podqueue"
)

// TestParse parses configurations. The expected result follows each configuration after a line "----": the profiles
// with their plugins, each with its weight and the extension points at which it is disabled, or the error.
func TestParse(t *testing.T) {
	files, err := filepath.Glob("testdata/config/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no configurations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			config, want, _ := strings.Cut(string(text), "----\n")
			got := formatConfig([]byte(config))
			if textcase.Update() {
				if err := os.WriteFile(file, []byte(config+"----\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

func formatConfig(text []byte) string {
	file, err := Parse(text)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	c := Config{File: file}
	profiles, err := c.profiles(framework.Deps{})
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var out strings.Builder
	q := c.queueSettings()
	fmt.Fprintf(&out, "backoff %v to %v\n", q.InitialBackoff, q.MaxBackoff)
	for _, p := range profiles {
		fmt.Fprintf(&out, "profile %s, %d%% of nodes\n", p.Name, p.Percentage)
		in := file.Profiles[0]
		for i := range file.Profiles {
			if *file.Profiles[i].SchedulerName == p.Name {
				in = file.Profiles[i]
			}
		}
		points := map[string]plugins.Points{}
		if in.Plugins != nil {
			for _, c := range plugins.Choose(in.Plugins, false) {
				points[c.Name] = c.At
			}
		}
		for _, pl := range p.Plugins {
			fmt.Fprintf(&out, "  %s %d", pl.Name, pl.Weight)
			if at, has := points[pl.Name]; has && at != plugins.AllPoints {
				fmt.Fprintf(&out, " not at %s", plugins.AllPoints&^at)
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// FuzzParse checks that every text is a configuration or an error, and that a valid configuration makes a working
// scheduler.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/config/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		config, _, _ := strings.Cut(string(text), "----\n")
		f.Add([]byte(config))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err != nil {
			return
		}
		c := Config{File: file}
		profiles, err := c.profiles(framework.Deps{})
		if err != nil || len(profiles) == 0 {
			t.Fatalf("a configuration that was accepted makes no profiles: %v", err)
		}
		s := benchState(3).Snapshot()
		for i := range profiles {
			profiles[i].Plugins = withoutReads(profiles[i].Plugins)
			if d := Decide(s, framework.NewPodInfo(benchPod(0)), &profiles[i], framework.Seed{}); d.Node == "" && d.Message() == "" {
				t.Fatalf("no node, and no reason")
			}
		}
		podqueue.New(c.queueSettings(), profiles)
	})
}

// withoutReads returns the plugins that read nothing from the cluster.
func withoutReads(in []framework.Plugin) (out []framework.Plugin) {
	for _, p := range in {
		if len(p.Reads) == 0 {
			out = append(out, p)
		}
	}
	return out
}
