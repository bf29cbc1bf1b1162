package resourceclaim

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestDecideClaim runs the cases of testdata/decide.cases.
func TestDecideClaim(t *testing.T) {
	text, err := os.ReadFile("testdata/decide.cases")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		input, want, found := strings.Cut(line, " -> ")
		if strings.HasPrefix(line, "#") || !found {
			continue
		}
		n++
		c, pods := parseClaim(t, strings.Fields(input))
		var owner *corev1.Pod
		if name, _ := generatedFor(c); name != "" {
			owner = pods[name]
		}
		got := formatPlan(c, decideClaim(c, func(name string) *corev1.Pod { return pods[name] }, owner))
		if got != strings.TrimSpace(want) {
			t.Errorf("%s\ngot:  %s\nwant: %s", input, got, want)
		}
	}
	if n < 20 {
		t.Errorf("only %d cases", n)
	}
}

func parseClaim(t *testing.T, words []string) (*resourcev1.ResourceClaim, map[string]*corev1.Pod) {
	c, pods := &resourcev1.ResourceClaim{}, map[string]*corev1.Pod{}
	for i := 0; i < len(words); i++ {
		if name, state, isPod := strings.Cut(words[i], "="); isPod {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "n"}}
			switch state {
			case "runs":
				p.Status.Phase = corev1.PodRunning
			case "done":
				p.Status.Phase = corev1.PodFailed
			case "unplaced":
				p.Spec.NodeName, p.DeletionTimestamp = "", new(metav1.Now())
			case "replaced":
				p.UID = "other"
			}
			pods[name] = p
			continue
		}
		switch words[i] {
		case "for":
			i++
			c.Status.ReservedFor = append(c.Status.ReservedFor,
				resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: words[i], UID: types.UID(words[i])})
		case "other":
			c.Status.ReservedFor = append(c.Status.ReservedFor,
				resourcev1.ResourceClaimConsumerReference{APIGroup: "example.com", Resource: "things", Name: "other"})
		case "mine":
			i++
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: words[i], UID: types.UID(words[i]),
				Controller: new(true)}}
		case "allocated":
			c.Status.Allocation = &resourcev1.AllocationResult{}
		case "held":
			c.Finalizers = []string{resourcev1.Finalizer}
		case "deleted":
			c.DeletionTimestamp = new(metav1.Now())
		default:
			t.Fatalf("what is %s?", words[i])
		}
	}
	return c, pods
}

func formatPlan(c *resourcev1.ResourceClaim, p claimPlan) string {
	var out []string
	if p.status {
		text := "status"
		for _, r := range p.reserved {
			text += " " + r.Name
		}
		if len(p.reserved) == 0 {
			text += " none"
		}
		if p.deallocate {
			text += ", deallocate"
		}
		out = append(out, text)
	}
	if p.release {
		out = append(out, "release")
	}
	if p.delete {
		out = append(out, "delete")
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "; ")
}

func TestMissingClaims(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{
			{Name: "named", ResourceClaimName: new("there")},
			{Name: "fresh", ResourceClaimTemplateName: new("t")},
			{Name: "left", ResourceClaimTemplateName: new("t")},
			{Name: "stolen", ResourceClaimTemplateName: new("t")},
			{Name: "none", ResourceClaimTemplateName: new("t")},
			{Name: "kept", ResourceClaimTemplateName: new("t")},
		}}}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{
		{Name: "stolen", ResourceClaimName: new("p-stolen-1")}, {Name: "none"}, {Name: "kept", ResourceClaimName: new("p-kept-1")},
	}
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: new(true)}}
	claims := map[string]*resourcev1.ResourceClaim{
		"p-stolen-1": {ObjectMeta: metav1.ObjectMeta{Name: "p-stolen-1"}},
		"p-kept-1":   {ObjectMeta: metav1.ObjectMeta{Name: "p-kept-1", OwnerReferences: owners}},
	}
	w := world{
		claim: func(name string) *resourcev1.ResourceClaim { return claims[name] },
		owned: []*resourcev1.ResourceClaim{
			{ObjectMeta: metav1.ObjectMeta{Name: "other", OwnerReferences: owners}},
			{ObjectMeta: metav1.ObjectMeta{Name: "p-left-1", OwnerReferences: owners,
				Annotations: map[string]string{resourcev1.PodResourceClaimAnnotation: "left"}}},
		},
		template: func(string) *resourcev1.ResourceClaimTemplate { return &resourcev1.ResourceClaimTemplate{} },
	}
	wants, _, err := missingClaims(p, w)
	var got []string
	for _, x := range wants {
		if x.make != nil {
			got = append(got, x.request+" make "+x.make.GenerateName)
		} else {
			got = append(got, x.request+" have "+x.have)
		}
	}
	if want := []string{"fresh make p-fresh-", "left have p-left-1", "stolen make p-stolen-"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	w.template = func(string) *resourcev1.ResourceClaimTemplate { return nil }
	if _, request, err := missingClaims(p, w); request != "fresh" || err == nil {
		t.Errorf("without a template: %q, %v", request, err)
	}
	p.Status.ResourceClaimStatuses = withClaimStatuses(p, map[string]string{"fresh": "p-fresh-1", "stolen": "p-stolen-2"})
	if names := claimNames(p); !slices.Equal(names, []string{"there", "p-fresh-1", "p-stolen-2", "p-kept-1"}) {
		t.Errorf("the Pod's claims are %q", names)
	}
}

func TestBaseName(t *testing.T) {
	long := strings.Repeat("p", 60)
	for _, test := range []struct{ pod, request, want string }{
		{"web", "gpu", "web-gpu-"},
		{long, "gpu", strings.Repeat("p", 52) + "-gp"},
		{long, strings.Repeat("r", 60), strings.Repeat("p", 28) + "-" + strings.Repeat("r", 28)},
	} {
		if got := baseName(test.pod, test.request); got != test.want || len(got) > 58 {
			t.Errorf("%s and %s: %s (%d)", test.pod, test.request, got, len(got))
		}
	}
}
