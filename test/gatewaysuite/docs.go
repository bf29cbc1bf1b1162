package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// title begins the section of docs/conformance.md.
const title = "Gateway API"

// report has the fields of the suite's report that are used.
type report struct {
	Profiles []struct {
		Name     string `json:"name"`
		Core     part   `json:"core"`
		Extended part   `json:"extended"`
	} `json:"profiles"`
}

// part are the tests of a profile that need core features only, or also extended ones.
type part struct {
	Result      string   `json:"result"`
	FailedTests []string `json:"failedTests"`
	Statistics  struct {
		Passed  int `json:"Passed"`
		Skipped int `json:"Skipped"`
		Failed  int `json:"Failed"`
	} `json:"statistics"`
	SupportedFeatures   []string `json:"supportedFeatures"`
	UnsupportedFeatures []string `json:"unsupportedFeatures"`
}

// sectionOf returns the section of the document for a report.
func sectionOf(text []byte, with suiteRun, took time.Duration) (string, error) {
	var r report
	if err := yaml.Unmarshal(text, &r); err != nil {
		return "", fmt.Errorf("read the report: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nThe conformance suite of the Gateway API %s (module `sigs.k8s.io/gateway-api/conformance`, definitions of the standard channel), run on one node with containers on %s in %s "+
		"by `make gateway-conformance`. It tests every feature that the GatewayClass says it has. A test that needs several features counts in each profile that has them.\n\n", title, with.version, time.Now().Format(time.DateOnly), took)
	b.WriteString("| profile | core: passed | not passed | extended: passed | not passed |\n|---|---|---|---|---|\n")
	var has, lacks, failed []string
	for _, p := range r.Profiles {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", p.Name, p.Core.Statistics.Passed, p.Core.Statistics.Failed,
			p.Extended.Statistics.Passed, p.Extended.Statistics.Failed)
		has, lacks = append(has, p.Extended.SupportedFeatures...), append(lacks, p.Extended.UnsupportedFeatures...)
		failed = append(failed, slices.Concat(p.Core.FailedTests, p.Extended.FailedTests)...)
	}
	for _, l := range []*[]string{&has, &lacks, &failed} {
		slices.Sort(*l)
		*l = slices.Compact(*l)
	}
	fmt.Fprintf(&b, "\n%d extended features of these profiles are supported: %s.\n\n%d are not: %s.\n", len(has), strings.Join(has, ", "), len(lacks), strings.Join(lacks, ", "))
	if len(failed) > 0 {
		fmt.Fprintf(&b, "\nTests that did not pass: %s.\n", strings.Join(failed, ", "))
	}
	return b.String(), nil
}

// withSection puts the section into a page, in the place of its former version.
func withSection(page, section string) string {
	parts := strings.Split(strings.TrimRight(page, "\n"), "\n## ")
	parts = slices.DeleteFunc(parts, func(p string) bool { return strings.HasPrefix(p, title+"\n") })
	return strings.TrimRight(strings.Join(append(parts, section), "\n## "), "\n") + "\n"
}
