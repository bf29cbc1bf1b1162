package cli

import (
	"testing"
	"time"
)

func TestTokenID(t *testing.T) {
	for text, want := range map[string]string{
		"abc123": "abc123", "abc123.0123456789abcdef": "abc123", "abc123.0123456789abcdef.00ff": "abc123",
		"": "", "abc12": "", "ABC123": "", "abc1234": "", "../abc": "", "abc123/..": "", "..": "",
	} {
		if got, err := tokenID(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestDescribeExpiry(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for expires, want := range map[string]string{
		"": "never", "2026-01-02T03:00:00Z": "has ended", "2026-01-02T03:34:05Z": "in 30m0s", "2026-01-03T03:04:05Z": "in 24h0m0s",
		"soon": "soon",
	} {
		if got := describeExpiry(expires, now); got != want {
			t.Errorf("%q ends %q, want %q", expires, got, want)
		}
	}
}
