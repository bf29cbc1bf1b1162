package settings

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"proa.dev/run/datafolder"
)

// Values has the values that flags or a config file give, by the name of the setting.
type Values map[string][]string

// maxConfigFile bounds what is read as a config file.
const maxConfigFile = 1 << 20

// Load returns the configuration that the config file, unless its path is empty, and the flags make of the defaults.
// Flags take precedence over the file.
func Load(path string, flags Values) (Config, error) {
	c := Default()
	inFile := Values{}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return c, fmt.Errorf("read the config file: %w", err)
		}
		if inFile, err = ParseFile(data); err != nil {
			return c, fmt.Errorf("%s: %w", path, err)
		}
	}
	c.given = Values{}
	for _, s := range All() {
		if vs := flags[s.Name]; len(vs) > 0 {
			c.given[s.Name] = vs
			if err := s.Set(&c, vs); err != nil {
				return c, fmt.Errorf("--%s: %w", s.Name, err)
			}
		} else if vs := inFile[s.Name]; len(vs) > 0 {
			c.given[s.Name] = vs
			if err := s.Set(&c, vs); err != nil {
				return c, fmt.Errorf("%s: %s: %w", path, s.Name, err)
			}
		}
	}
	return c, nil
}

// Absolute makes relative paths among the values absolute, so that they mean the same in another working directory.
func (s Values) Absolute() error {
	for _, setting := range All() {
		if !setting.isPath() {
			continue
		}
		for i, v := range s[setting.Name] {
			parts := []string{v}
			if setting.Many {
				parts = splitLists(parts)
			}
			for j, part := range parts {
				if part == "" || part == "-" { // standard output, where that can be given
					continue
				}
				path, err := datafolder.Absolute(part)
				if err != nil {
					return fmt.Errorf("--%s: %w", setting.Name, err)
				}
				parts[j] = path
			}
			s[setting.Name][i] = strings.Join(parts, ",")
		}
	}
	return nil
}

// isPath tells whether the value is the path of a file or a folder; its help says so.
func (s Setting) isPath() bool {
	return strings.Contains(s.Help, "`FILE`") || strings.Contains(s.Help, "`DIR`")
}

// ParseFile parses a config file: a YAML mapping of setting names to values. Settings that may be given several times
// take lists, and feature-gates takes a mapping too. Errors name the line.
func ParseFile(data []byte) (Values, error) {
	if len(data) > maxConfigFile {
		return nil, fmt.Errorf("a config file of %d bytes is too large", len(data))
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	given := Values{}
	if len(doc.Content) == 0 {
		return given, nil
	}
	top := doc.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return given, nil
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: the file must be a mapping, a line \"name: value\" for each setting", top.Line)
	}
	settings := All()
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		at := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == key.Value })
		if at < 0 {
			return nil, fmt.Errorf("line %d: there is no setting %q; the names are those of the flags of \"proa server\"", key.Line, key.Value)
		}
		if _, twice := given[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %s is given twice", key.Line, key.Value)
		}
		vs, err := values(settings[at], value)
		if err != nil {
			return nil, err
		}
		given[key.Value] = vs
	}
	return given, nil
}

// values returns the values of a setting in the config file.
func values(s Setting, n *yaml.Node) ([]string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return []string{n.Value}, nil
	case n.Kind == yaml.SequenceNode && s.Many:
		var out []string
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: the items of %s must be plain values", item.Line, s.Name)
			}
			out = append(out, item.Value)
		}
		return out, nil
	case n.Kind == yaml.MappingNode && s.Name == "feature-gates":
		var out []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			out = append(out, n.Content[i].Value+"="+n.Content[i+1].Value)
		}
		return out, nil
	case s.Many:
		return nil, fmt.Errorf("line %d: %s must be a value or a list", n.Line, s.Name)
	}
	return nil, fmt.Errorf("line %d: %s must be one value", n.Line, s.Name)
}

// Format returns the values as a config file.
func (s Values) Format() ([]byte, error) {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	for _, setting := range All() {
		vs := s[setting.Name]
		if len(vs) == 0 {
			continue
		}
		if !setting.Many {
			vs = vs[len(vs)-1:]
		}
		value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: vs[0]}
		if len(vs) > 1 {
			value = &yaml.Node{Kind: yaml.SequenceNode}
			for _, v := range vs {
				value.Content = append(value.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v})
			}
		}
		doc.Content = append(doc.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: setting.Name}, value)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return yaml.Marshal(doc)
}
