package main

import (
	"strings"
	"testing"
	"time"
)

// TestSection checks that the section of a run replaces that of the run before, and that other sections are kept.
func TestSection(t *testing.T) {
	section, err := sectionOf([]byte("profiles:\n- name: GATEWAY-HTTP\n  core: {statistics: {Passed: 3, Failed: 1}, failedTests: [A]}\n  extended: {supportedFeatures: [B2, A1], unsupportedFeatures: [Z]}\n"),
		suiteRun{version: "v1.2.3"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| GATEWAY-HTTP | 3 | 1 | 0 | 0 |", "2 extended features", "A1, B2.", "did not pass: A."} {
		if !strings.Contains(section, want) {
			t.Errorf("%q is missing in\n%s", want, section)
		}
	}
	page := withSection("# Conformance\n\ntext\n\n## Gateway API\n\nold\n\n## Not run\n\nnone\n", section)
	if strings.Contains(page, "old") || strings.Count(page, "## Gateway API\n") != 1 || !strings.Contains(page, "## Not run\n\nnone") {
		t.Errorf("the page:\n%s", page)
	}
	if _, err := sectionOf([]byte("{"), suiteRun{}, 0); err == nil {
		t.Error("a report that cannot be read is no error")
	}
}
