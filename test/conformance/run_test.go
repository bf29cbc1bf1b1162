package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDealSpreadsTests(t *testing.T) {
	var tests []test
	for range 25 {
		tests = append(tests, test{})
	}
	for _, c := range []struct{ n, size, procs, batches int }{{25, 10, 4, 4}, {25, 10, 2, 3}, {3, 10, 4, 3}, {0, 10, 4, 0}} {
		got := deal(tests[:c.n], c.size, c.procs)
		sum := 0
		for _, b := range got {
			sum += len(b)
		}
		if len(got) != c.batches || sum != c.n {
			t.Errorf("%d tests: %d batches with %d tests, want %d batches", c.n, len(got), sum, c.batches)
		}
	}
}

func TestReadReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	report := `[{"SpecReports":[
		{"LeafNodeType":"It","ContainerHierarchyTexts":["[sig-a] A"],"LeafNodeText":"works [Conformance]","State":"passed","RunTime":1500000000},
		{"LeafNodeType":"It","ContainerHierarchyTexts":["[sig-a] A"],"LeafNodeText":"fails [Conformance]","State":"failed","Failure":{"Message":"\n  first\nsecond"}},
		{"LeafNodeType":"It","ContainerHierarchyTexts":["[sig-a] A"],"LeafNodeText":"out of focus","State":"skipped"},
		{"LeafNodeType":"It","ContainerHierarchyTexts":["[sig-a] A"],"LeafNodeText":"compares","State":"failed","Failure":{"Message":"Expected\n    <string>: a\nto equal\n    <string>: b"}},
		{"LeafNodeType":"It","ContainerHierarchyTexts":["[sig-a] A"],"LeafNodeText":"needs nodes","State":"skipped","Failure":{"Message":"no nodes"}}]}]`
	if err := os.WriteFile(file, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]result{
		"[sig-a] A works [Conformance]": {State: "passed", Seconds: 1.5},
		"[sig-a] A fails [Conformance]": {State: "failed", Reason: "first"},
		"[sig-a] A needs nodes":         {State: "skipped", Reason: "no nodes"},
		"[sig-a] A compares":            {State: "failed", Reason: "Expected <string>: a to equal <string>: b"},
	}
	if len(got) != len(want) {
		t.Errorf("%d results, want %d: %v", len(got), len(want), got)
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %+v, want %+v", name, got[name], w)
		}
	}
}

// TestOtherSectionsAreKept checks that writing the report again keeps the sections of other suites.
func TestOtherSectionsAreKept(t *testing.T) {
	const text = "# Conformance\n\nnew\n\n## Not passed\n\n\n"
	former := "# Conformance\n\nold\n\n## Not passed\n\n- old\n\n## Other\n\n| a |\n\n## Third\n\nx\n"
	const want = "# Conformance\n\nnew\n\n## Not passed\n\n## Other\n\n| a |\n\n## Third\n\nx\n"
	if got := withSections(text, former); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := withSections(want, want); got != want {
		t.Errorf("again: got %q", got)
	}
	if got := withSections(text, ""); got != text {
		t.Errorf("the first time: got %q", got)
	}
}
