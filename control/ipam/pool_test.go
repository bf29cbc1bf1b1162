package ipam

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPool runs the cases of testdata/pool.txt.
func TestPool(t *testing.T) {
	text, err := os.ReadFile("testdata/pool.txt")
	if err != nil {
		t.Fatal(err)
	}
	var p *pool
	var used []netip.Prefix
	name, checks := "", 0
	isUsed := func(b netip.Prefix) bool { return slices.ContainsFunc(used, b.Overlaps) }
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		switch words[0] {
		case "case":
			name, used = strings.Join(words[1:], " "), nil
		case "ranges":
			p = newPool(parseRanges(t, words[1:]))
		case "used":
			used = append(used, prefixes(words[1:])...)
		case "free":
			p.release(words[1])
		default:
			checks++
			cidrs, full := p.reserve(words[0], isUsed)
			got := strings.Join(texts(cidrs), " ")
			if full != nil {
				got = "full"
				for _, r := range full {
					got += " " + r.CIDR.String()
				}
			}
			if want := strings.Join(words[2:], " "); got != want {
				t.Errorf("%s: %s gets %s, want %s", name, words[0], got, want)
			}
		}
	}
	if checks < 30 {
		t.Errorf("only %d checks", checks)
	}
}

func parseRanges(t *testing.T, words []string) (out []Range) {
	for _, w := range words {
		at := strings.LastIndex(w, "/")
		bits, mask, given := strings.Cut(w[at:], ":")
		n, err := 0, error(nil)
		if given {
			if n, err = strconv.Atoi(mask); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Parse([]string{w[:at] + bits}, n, n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r...)
	}
	return out
}

func TestParseErrors(t *testing.T) {
	for cidrs, want := range map[string]string{
		"nonsense":                    "cluster CIDR \"nonsense\"",
		"10.0.0.0/25":                 "cluster CIDR 10.0.0.0/25 is smaller than the /24 that a node gets",
		"fd00::/16":                   "cluster CIDR fd00::/16 has more than 1048576 networks of /64",
		"10.0.0.0/16 10.0.128.0/17":   "cluster CIDRs 10.0.0.0/16 and 10.0.128.0/17 overlap",
		"10.244.0.0/16 fd00:244::/48": "",
	} {
		_, err := Parse(strings.Fields(cidrs), 0, 0)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", cidrs, err, want)
		}
	}
	if _, err := Parse([]string{"10.0.0.0/16"}, 33, 0); err == nil {
		t.Error("a mask of 33 bits is accepted for version 4")
	}
	if d := Default(); len(d) != 1 || d[0].size() != 256 || d[0].CIDR.String() != "10.244.0.0/16" {
		t.Errorf("the default is %v", d)
	}
}
