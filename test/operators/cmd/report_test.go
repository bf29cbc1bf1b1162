package main

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	const output = "\x1b[38;5;10m[1mFAIL!\x1b[0m -- 38 Passed\x1b[0m | \x1b[38;5;9m3 Failed\x1b[0m | 2 Pending | 0 Skipped\n" +
		"--- FAIL: TestIntegration (2.91s)\n    --- PASS: TestOther/part (0.00s)\n--- PASS: TestOther (0.00s)\nFAIL\n"
	o := judge("client", output, false, 90*time.Second)
	if got, want := o.row(), "| pkg/client | 38 | 3 | 2 | 2 | 90 s | fails: TestIntegration |"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if err := unexpected([]outcome{o, {name: "client/apiutil"}, {name: "cache", ok: true}}); err == nil ||
		err.Error() != "pkg/client fails" {
		t.Errorf("unexpected is %v", err)
	}
	text := section("v1", "a day", []outcome{o, {name: "client/apiutil"}})
	if !strings.HasPrefix(text, "## controller-runtime\n\n0 of 2 packages") || !strings.Contains(text, "\npkg/client/apiutil: ") {
		t.Errorf("the section is %s", text)
	}
}

func TestReplaceSection(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"# A\n\nx\n", "# A\n\nx\n\n## S\n\nnew\n"},
		{"# A\n\n## S\n\nold\n", "# A\n\n## S\n\nnew\n"},
		{"# A\n\n## S\n\nold\n\n## T\n\ny\n", "# A\n\n## S\n\nnew\n\n## T\n\ny\n"},
	} {
		if got := replaceSection(tt.text, "## S\n\nnew\n"); got != tt.want {
			t.Errorf("%q becomes %q, want %q", tt.text, got, tt.want)
		}
	}
}
