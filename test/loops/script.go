package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// scenario is a file with the steps of a client and of the kubelets.
type scenario struct {
	name  string
	about string // the first comment
	alone bool   // it changes nodes, so no other scenario may run at the same time
	steps []step
	file  []byte
}

// step is a line of a scenario, with the YAML documents that are indented below it.
type step struct {
	line int
	args []string
	docs []object
}

func (s step) String() string { return strings.Join(s.args, " ") }

// space is the name of the scenario's namespace; others of its own have "--" and a name after it.
func (s *scenario) space() string { return s.name }

// readScenarios reads the files of a folder whose names have one of the given parts.
func readScenarios(dir string, only []string) ([]*scenario, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var out []*scenario
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		if !wanted(name, only) {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		s, err := parse(name, data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		out = append(out, s)
	}
	return out, nil
}

func wanted(name string, only []string) bool {
	for _, o := range only {
		if strings.HasPrefix(name, o) {
			return true
		}
	}
	return len(only) == 0
}

// parse reads a scenario. "{ns}" in it stands for the scenario's namespace.
func parse(name string, data []byte) (*scenario, error) {
	s := &scenario{name: name, file: data}
	lines := strings.Split(strings.ReplaceAll(string(data), "{ns}", name), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.TrimSpace(line) == "":
			continue
		case strings.HasPrefix(line, "#"):
			if s.about == "" {
				s.about = strings.TrimSpace(strings.TrimPrefix(line, "#"))
			}
			continue
		case line[0] == ' ':
			return nil, fmt.Errorf("line %d is indented, but stands below no step", i+1)
		case line == "alone":
			s.alone = true
			continue
		}
		st := step{line: i + 1, args: strings.Fields(line)}
		var block []string
		for i+1 < len(lines) && (strings.HasPrefix(lines[i+1], "  ") || strings.TrimSpace(lines[i+1]) == "") {
			i++
			block = append(block, strings.TrimPrefix(lines[i], "  "))
		}
		for doc := range strings.SplitSeq(strings.Join(block, "\n"), "---\n") {
			if strings.TrimSpace(doc) == "" {
				continue
			}
			var o object
			if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
				return nil, fmt.Errorf("below line %d: %w", st.line, err)
			}
			st.docs = append(st.docs, o)
		}
		s.steps = append(s.steps, st)
	}
	if len(s.steps) == 0 {
		return nil, fmt.Errorf("there are no steps")
	}
	return s, nil
}
