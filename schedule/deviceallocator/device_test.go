package deviceallocator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
)

// TestAllocate allocates devices on a node "here" with the label zone=z. A case begins with "=== " and its name; its lines are
//
//	slice SPEC, claim SPEC, class NAME SPEC, rule SPEC    an object with this spec in YAML
//	taken POOL/DEVICE                                     a device that is allocated
//	share POOL/DEVICE {AMOUNTS}                           capacity of a device that is allocated
//
// The result follows with a ">".
func TestAllocate(t *testing.T) {
	textcase.Play(t, "testdata/*.txt", "=== ", func(t *testing.T, body string) string {
		in, out := allocate(t, body)
		return in + out
	})
}

func allocate(t *testing.T, body string) (in, out string) {
	classes := map[string]*resourcev1.DeviceClass{"gpu": {ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}}
	input := Input{Class: func(name string) *resourcev1.DeviceClass { return classes[name] }}
	made := 0
	input.NewID = func() types.UID { made++; return types.UID(fmt.Sprint(made)) }
	input.Select = func(expression, _ string, d *resourcev1.Device) (bool, error) {
		if expression == "broken" {
			return false, fmt.Errorf("CEL runtime error: no such key")
		}
		return strings.HasPrefix(d.Name, expression), nil
	}
	var claims []*resourcev1.ResourceClaim
	parse := func(text string, into any) {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	for line := range strings.Lines(strings.TrimSpace(body)) {
		if strings.HasPrefix(line, ">") {
			continue
		}
		in += strings.TrimRight(line, "\n") + "\n"
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "slice":
			s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(len(input.Slices))}}
			parse(rest, &s.Spec)
			if s.Spec.Driver == "" {
				s.Spec.Driver = "d"
			}
			if s.Spec.Pool.ResourceSliceCount == 0 {
				s.Spec.Pool.ResourceSliceCount = 1
			}
			input.Slices = append(input.Slices, s)
		case "claim":
			c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%d", len(claims))}}
			parse(rest, &c.Spec.Devices)
			claims = append(claims, c)
		case "class":
			name, spec, _ := strings.Cut(rest, " ")
			c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
			parse(spec, &c.Spec)
			classes[name] = c
		case "rule":
			r := &resourcev1.DeviceTaintRule{}
			parse(rest, &r.Spec)
			input.Rules = append(input.Rules, r)
		case "taken":
			pool, device, _ := strings.Cut(rest, "/")
			input.Used.Add(&resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{{Driver: "d", Pool: pool, Device: device}}}})
		case "share":
			id, amounts, _ := strings.Cut(rest, " ")
			pool, device, _ := strings.Cut(id, "/")
			r := resourcev1.DeviceRequestAllocationResult{Driver: "d", Pool: pool, Device: device, ShareID: new(types.UID)}
			parse(amounts, &r.ConsumedCapacity)
			input.Used.Add(
				&resourcev1.AllocationResult{
					Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{r}}})
		default:
			t.Fatalf("no such line: %s", line)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", Labels: map[string]string{"zone": "z"}}}
	results, err := New(input).Allocate(node, claims)
	if err != nil {
		return in, "> error: " + err.Error() + "\n"
	}
	if results == nil {
		return in, "> none\n"
	}
	for i, r := range results {
		out += fmt.Sprintf("> c%d:", i)
		for _, d := range r.Devices.Results {
			out += fmt.Sprintf(" %s=%s/%s", d.Request, d.Pool, d.Device)
			if d.AdminAccess != nil {
				out += " (admin)"
			}
			if d.ShareID != nil {
				out += " (share " + string(*d.ShareID)
				for _, name := range slices.Sorted(maps.Keys(d.ConsumedCapacity)) {
					q := d.ConsumedCapacity[name]
					out += fmt.Sprintf(", %s %s", name, q.String())
				}
				out += ")"
			}
			if len(d.BindingConditions) > 0 {
				out += fmt.Sprintf(" (when %v, not %v)", d.BindingConditions, d.BindingFailureConditions)
			}
		}
		for _, c := range r.Devices.Config {
			out += fmt.Sprintf("; %s %v %s", c.Source, c.Requests, c.Opaque.Driver)
		}
		if r.NodeSelector != nil {
			text, err := yaml.Marshal(r.NodeSelector.NodeSelectorTerms)
			if err != nil {
				t.Fatal(err)
			}
			out += "; at " + strings.Join(strings.Fields(string(text)), " ")
		}
		out += "\n"
	}
	return in, out
}
