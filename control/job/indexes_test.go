package job

import (
	"slices"
	"testing"
)

func TestIndexes(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
		count int
	}{
		{"", 10, "", 0},
		{"3", 10, "3", 1},
		{"0,1,2,5,6,8", 10, "0-2,5,6,8", 6},
		{"1-4,5", 10, "1-5", 5},
		{"1-4,7-20", 10, "1-4,7-9", 7},
		{"1-4,12,13", 10, "1-4", 4},
		{"x,2,3-y,4", 10, "2,4", 2},
	} {
		x := parseIndexes(c.text, c.limit)
		if x.String() != c.want || x.count() != c.count {
			t.Errorf("%q below %d is %q with %d, want %q with %d", c.text, c.limit, x, x.count(), c.want, c.count)
		}
	}
	x := parseIndexes("1,2,5-7", 10)
	for i := range 10 {
		if want := slices.Contains([]int{1, 2, 5, 6, 7}, i); x.has(i) != want {
			t.Errorf("%s has %d: %v", x, i, !want)
		}
	}
	if got := x.with([]int{9, 3, 4}).String(); got != "1-7,9" {
		t.Errorf("with 3, 4 and 9: %s", got)
	}
	if got := x.common(parseIndexes("0-1,6-9", 10)); got != 3 {
		t.Errorf("%d in common", got)
	}
	for n, want := range map[int][]int{0: nil, 2: {0, 3}, 4: {0, 3, 4, 8}, 9: {0, 3, 4, 8, 9}} {
		if got := x.missing(n, 10); !slices.Equal(got, want) {
			t.Errorf("%d missing: %v, want %v", n, got, want)
		}
	}
}

func TestIndexedPrefix(t *testing.T) {
	long := "a-name-of-a-job-that-is-as-long-as-a-label-can-possibly-be-63ch"
	if got := indexedPrefix(long, "-12-"); got != "a-name-of-a-job-that-is-as-long-as-a-label-can-possibl-12-" || len(got) != maxPrefix {
		t.Errorf("%s has %d characters", got, len(got))
	}
	if got := indexedPrefix("short", "-0-"); got != "short-0-" {
		t.Error(got)
	}
}
