package schedule_test

import (
	"encoding/json"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// show prints parts of an object, such as "status.conditions".
func (s *loopTest) show(name, object string, paths []string) string {
	on, namespace := plural(name)
	obj, err := s.admin.Get(s.Context(), on, namespace, object, "")
	if err != nil {
		return err.Error()
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		s.Fatal(err)
	}
	var out strings.Builder
	for _, path := range paths {
		var at any
		if err := json.Unmarshal(raw, &at); err != nil {
			s.Fatal(err)
		}
		for key := range strings.SplitSeq(path, ".") {
			m, _ := at.(map[string]any)
			at = m[key]
		}
		text, err := yaml.Marshal(at)
		if err != nil {
			s.Fatal(err)
		}
		out.WriteString(path + ": " + anonymous(strings.TrimSpace(strings.ReplaceAll("\n"+string(text), "\n", "\n  "))) + "\n")
	}
	return out.String()
}

// anonymous returns a text with its UIDs replaced, because they differ in each run.
func anonymous(text string) string {
	return regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(text, "UID")
}
