package servicecidr

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDecide runs the lines of testdata/decide.txt: ranges as NAME=CIDR,CIDR, those that were deleted some seconds ago with
// -SECONDS after the name, addresses in use, and the plan for the first range.
func TestDecide(t *testing.T) {
	text, err := os.ReadFile("testdata/decide.txt")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		n++
		input, want, _ := strings.Cut(line, "->")
		var all []*networkingv1.ServiceCIDR
		var addresses []*networkingv1.IPAddress
		for word := range strings.FieldsSeq(input) {
			name, cidrs, isRange := strings.Cut(word, "=")
			if !isRange {
				a := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: strings.TrimSuffix(word, "!"),
					Labels: map[string]string{}}}
				if a.Name == word {
					a.Labels[networkingv1.LabelManagedBy] = allocator
				}
				addresses = append(addresses, a)
				continue
			}
			r := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{finalizer}},
				Spec: networkingv1.ServiceCIDRSpec{CIDRs: strings.Split(cidrs, ",")}}
			if base, ago, deleted := strings.Cut(name, "-"); deleted {
				d, err := time.ParseDuration(ago + "s")
				if err != nil {
					t.Fatal(err)
				}
				name, r.DeletionTimestamp = base, new(metav1.NewTime(now.Add(-d)))
			}
			r.Name = name
			all = append(all, r)
		}
		p := decide(all[0], all, func() []*networkingv1.IPAddress { return addresses }, now)
		got := "nothing"
		switch {
		case p.conditions != nil:
			c := p.conditions[0]
			got = strings.TrimSpace(string(c.Type) + " " + string(c.Status) + " " + c.Reason)
		case p.again > 0:
			got = "wait " + p.again.String()
		case p.finalizers != nil && !slices.Contains(*p.finalizers, finalizer):
			got = "release"
		}
		if got != strings.TrimSpace(want) {
			t.Errorf("%s: %s, want%s", input, got, want)
		}
	}
	if n < 15 {
		t.Errorf("only %d cases", n)
	}
}
