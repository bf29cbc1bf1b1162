package run

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Said is what flags or a config file say: the values by name of the setting.
type Said map[string][]string

// maxConfigFile bounds what is read as a config file.
const maxConfigFile = 1 << 20

// Load makes a config of the defaults, the config file, if its path is not empty, and the flags, which win.
func Load(path string, flags Said) (Config, error) {
	c := Default()
	inFile := Said{}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return c, fmt.Errorf("read the config file: %w", err)
		}
		if inFile, err = ParseFile(data); err != nil {
			return c, fmt.Errorf("%s: %w", path, err)
		}
	}
	c.said = Said{}
	for _, s := range Settings() {
		if vs := flags[s.Name]; len(vs) > 0 {
			c.said[s.Name] = vs
			if err := s.Set(&c, vs); err != nil {
				return c, fmt.Errorf("--%s: %w", s.Name, err)
			}
		} else if vs := inFile[s.Name]; len(vs) > 0 {
			c.said[s.Name] = vs
			if err := s.Set(&c, vs); err != nil {
				return c, fmt.Errorf("%s: %s: %w", path, s.Name, err)
			}
		}
	}
	return c, c.Validate()
}

// Absolute makes the paths in what is said independent of the folder one is in, for somebody who reads it elsewhere.
func (s Said) Absolute() error {
	for _, setting := range Settings() {
		if !setting.isPath() {
			continue
		}
		for i, v := range s[setting.Name] {
			parts := []string{v}
			if setting.Many {
				parts = split(parts)
			}
			for j, part := range parts {
				if part == "" || part == "-" { // standard output, where that can be said
					continue
				}
				path, err := absolute(part)
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

// isPath says that the value is the path of a file or a folder, as its help does.
func (s Setting) isPath() bool {
	return strings.Contains(s.Help, "`FILE`") || strings.Contains(s.Help, "`DIR`")
}

// ParseFile reads a config file: a mapping of setting names to values. Settings that may be given several times take
// lists; feature-gates takes a mapping too. Errors name the line.
func ParseFile(data []byte) (Said, error) {
	if len(data) > maxConfigFile {
		return nil, fmt.Errorf("a config file of %d bytes is too large", len(data))
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	said := Said{}
	if len(doc.Content) == 0 {
		return said, nil
	}
	top := doc.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return said, nil
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: the file must be a mapping, a line \"name: value\" for each setting", top.Line)
	}
	settings := Settings()
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		at := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == key.Value })
		if at < 0 {
			return nil, fmt.Errorf("line %d: there is no setting %q; the names are those of the flags of \"proa server\"", key.Line, key.Value)
		}
		if _, twice := said[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %s is given twice", key.Line, key.Value)
		}
		vs, err := values(settings[at], value)
		if err != nil {
			return nil, err
		}
		said[key.Value] = vs
	}
	return said, nil
}

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

// Format writes settings as a config file.
func (s Said) Format() ([]byte, error) {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	for _, setting := range Settings() {
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
