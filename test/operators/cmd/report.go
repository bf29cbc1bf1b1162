package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// outcome is the result of the tests of a package.
type outcome struct {
	name                           string
	ok                             bool
	passed, failed, pending, tests int // specs of Ginkgo; tests are functions of Go, with their parts, that have passed
	failures                       []string
	took                           time.Duration
	output                         string
}

// known returns the packages that fail for a reason that is not in proa, with the reason.
func known() map[string]string {
	return map[string]string{
		"client/apiutil": "What fails downloads a kube-apiserver v1.28 to test against a server without aggregated discovery: it is no test of the server it is given, " +
			"and there is nothing to download from here. The same tests with aggregated discovery pass.",
	}
}

// judge reads the output of go test -v.
func judge(name, output string, ok bool, took time.Duration) outcome {
	output = regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(output, "")
	o := outcome{name: name, ok: ok, took: took, output: output}
	for _, m := range regexp.MustCompile(`(\d+) Passed \| (\d+) Failed \| (\d+) Pending`).FindAllStringSubmatch(output, -1) {
		for i, n := range []*int{&o.passed, &o.failed, &o.pending} {
			more, _ := strconv.Atoi(m[i+1]) // they are digits
			*n += more
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL): (\S+)`).FindAllStringSubmatch(output, -1) {
		if m[1] == "PASS" {
			o.tests++
		} else {
			o.failures = append(o.failures, m[2])
		}
	}
	return o
}

// row is a line of the table.
func (o *outcome) row() string {
	result := "passes"
	if !o.ok {
		result = "fails: " + strings.Join(o.failures, ", ")
	}
	return fmt.Sprintf("| pkg/%s | %d | %d | %d | %d | %.0f s | %s |", o.name, o.passed, o.failed, o.pending, o.tests, o.took.Seconds(),
		result)
}

// section returns the section of the documentation.
func section(version, day string, all []outcome) string {
	var b strings.Builder
	good := 0
	for _, o := range all {
		if o.ok {
			good++
		}
	}
	fmt.Fprintf(&b, "## %s\n\n%d of %d packages of controller-runtime %s whose tests start a control plane pass. Written by `make operators` "+
		"(`go run ./test/operators/cmd %s`) on %s.\n", suiteName, good, len(all), version, suiteName, day)
	b.WriteString("The tests are those of the module, unchanged. They start proa by `KUBEBUILDER_ASSETS`, under the names of kube-apiserver and etcd " +
		"([how](guide/operators.md#envtest-in-any-version-and-language)). Pending specs are switched off by their authors. The time is with compiling.\n\n")
	b.WriteString("| package | specs passed | failed | pending | Go tests passed | time | |\n|---|---|---|---|---|---|---|\n")
	for _, o := range all {
		b.WriteString(o.row() + "\n")
	}
	for _, o := range all {
		if why := known()[o.name]; !o.ok && why != "" {
			fmt.Fprintf(&b, "\npkg/%s: %s\n", o.name, why)
		}
	}
	return b.String()
}

// writeSection puts the section into the file, in place of the former one or at the end.
func writeSection(path, version string, all []outcome) error {
	former, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := replaceSection(string(former), section(version, time.Now().UTC().Format(time.DateOnly), all))
	return errors.Join(os.WriteFile(path, []byte(text), 0o644), unexpected(all))
}

// replaceSection puts a section in place of that with the same title, or at the end.
func replaceSection(text, section string) string {
	title, _, _ := strings.Cut(section, "\n")
	before, rest, found := strings.Cut(text, "\n"+title+"\n")
	if !found {
		return strings.TrimRight(text, "\n") + "\n\n" + section
	}
	_, after, more := strings.Cut(rest, "\n## ")
	if !more {
		return before + "\n" + section
	}
	return before + "\n" + section + "\n## " + after
}

// unexpected names the packages that fail and should not.
func unexpected(all []outcome) (err error) {
	for _, o := range all {
		if !o.ok && known()[o.name] == "" {
			err = errors.Join(err, fmt.Errorf("pkg/%s fails", o.name))
		}
	}
	return err
}
