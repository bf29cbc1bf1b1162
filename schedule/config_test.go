package schedule

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/internal/textcase"
)

// TestParse reads configurations. What comes of one follows it after a line "----": the profiles with their plugins, each
// with its weight and where it was turned off, or the error.
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
			got := parsed([]byte(config))
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

func parsed(text []byte) string {
	file, err := Parse(text)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	c := Config{File: file}
	profiles, err := c.profiles(Deps{})
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var out strings.Builder
	q := c.queue()
	fmt.Fprintf(&out, "backoff %v to %v\n", q.FirstBackoff, q.LastBackoff)
	for _, p := range profiles {
		fmt.Fprintf(&out, "profile %s, %d%% of nodes\n", p.Name, p.Percentage)
		in := file.Profiles[0]
		for i := range file.Profiles {
			if *file.Profiles[i].SchedulerName == p.Name {
				in = file.Profiles[i]
			}
		}
		where := map[string]points{}
		if in.Plugins != nil {
			for _, c := range choose(registry(), in.Plugins) {
				where[c.name] = c.at
			}
		}
		for _, pl := range p.Plugins {
			fmt.Fprintf(&out, "  %s %d", pl.Name, pl.Weight)
			if at, has := where[pl.Name]; has && at != everywhere {
				fmt.Fprintf(&out, " not at %s", pointNames(everywhere&^at))
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

func pointNames(at points) string {
	var out []string
	for i, name := range []string{"preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "bind", "postBind"} {
		if at&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// FuzzParse wants every text to be a configuration or an error, and what is one to make a scheduler.
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
		profiles, err := c.profiles(Deps{})
		if err != nil || len(profiles) == 0 {
			t.Fatalf("a configuration that was accepted makes no profiles: %v", err)
		}
		s := benchState(3).Snapshot()
		for i := range profiles {
			profiles[i].Plugins = quiet(profiles[i].Plugins)
			if d := Decide(s, NewPodInfo(benchPod(0)), &profiles[i], Seed{}); d.Node == "" && d.Message() == "" {
				t.Fatalf("no node, and no reason")
			}
		}
		NewQueue(c.queue(), profiles)
	})
}

// quiet are the plugins that need no cluster.
func quiet(in []Plugin) (out []Plugin) {
	for _, p := range in {
		if len(p.Reads) == 0 {
			out = append(out, p)
		}
	}
	return out
}
