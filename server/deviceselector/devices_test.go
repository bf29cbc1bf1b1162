package deviceselector

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestSelector(t *testing.T) {
	device := &resourcev1.Device{
		Name: "gpu-0", AllowMultipleAllocations: new(true),
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"model":              {StringValue: new("a100")},
			"other.example/slot": {IntValue: new(int64(3))},
			"driverVersion":      {VersionValue: new("1.2.3")},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("40Gi")}},
	}
	is := Selector(t.Context())
	for expression, want := range map[string]string{
		`device.driver == "gpu.example.com"`:                                                "true",
		`device.driver == "other"`:                                                          "false",
		`device.attributes["gpu.example.com"].model == "a100"`:                              "true",
		`device.attributes["other.example"].slot > 3`:                                       "false",
		`device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("1.2.0"))`: "true",
		`device.capacity["gpu.example.com"].memory.compareTo(quantity("30Gi")) >= 0`:        "true",
		`device.allowMultipleAllocations`:                                                   "true",
		`"model" in device.attributes["nobody.example"]`:                                    "false",
		`device.attributes["gpu.example.com"].colour == "red"`:                              "CEL runtime error: no such key: colour",
		`quantity("1e-300000000").isInteger()`:                                              "CEL compile error: the exponent of a quantity has at most 3 digits",
		`isQuantity("1e-300000000")`:                                                        "CEL compile error: the exponent of a quantity has at most 3 digits",
		`isQuantity("1e-3000" + "00000")`:                                                   "CEL compile error: isQuantity() takes a literal or an attribute of the device",
		`["1e-300000000"].exists(q, isQuantity(q))`:                                         "CEL compile error: isQuantity() takes a literal or an attribute of the device",
		`cel.bind(q, "1e-300000000", isQuantity(q))`:                                        "CEL compile error: isQuantity() takes a literal or an attribute of the device",
		`["1e-300000000"].exists(device, isQuantity(device))`:                               "CEL compile error: isQuantity() takes a literal or an attribute of the device",
		`"1e-300000000".isQuantity()`:                                                       "CEL compile error: the exponent of a quantity has at most 3 digits",
		`isQuantity(device.attributes["gpu.example.com"].model)`:                            "false",
		`device.nothing`: "CEL compile error: ",
		// A text is not made when it would be too large, and an expression not compiled when that would take minutes.
		`lists.range(1000).map(x, "x").join("x").replace("", "` + strings.Repeat("x", 9000) + `") == ""`: "CEL runtime error: operation cancelled: actual cost limit exceeded",
		`[1]` + strings.Repeat(`.map(x, {x: x})`, 20) + `.size() > 0`:                                    "CEL compile error: the expression nests too many lists, maps or objects",
		// The cost of an expression is limited and, on a slow machine, its time.
		`[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, a+b+c+d+e+f > 0))))))`: "CEL runtime error: operation ",
	} {
		for range 2 { // the second time it is in the cache
			ok, err := is(expression, "gpu.example.com", device)
			got := map[bool]string{true: "true", false: "false"}[ok]
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", expression, got, want)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for expression, want := range map[string]string{
		`device.driver == "x"`: "",
		`device.driver`:        `sel: Invalid value: "device.driver": must evaluate to bool or the unknown type, not string`,
		`[1]` + strings.Repeat(`.map(x, {x: x})`, 20) + `.size() > 0`: `sel: Invalid value: "[1]` + strings.Repeat(`.map(x, {x: x})`, 20) + `.size() > 0": the expression nests`,
		`device.driver ==`: `sel: Invalid value: "device.driver ==": compilation failed: `,
		`device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, device.attributes.all(e, a+b+c+d+e != "x")))))`: `sel: Forbidden: too complex, exceeds cost limit`,
	} {
		got := ""
		if err := Check(field.NewPath("sel"), expression); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}

// TestExcessiveQuantityAttribute checks an attribute of a device that looks like a quantity without being one: only expressions
// that read quantities fail on it.
func TestExcessiveQuantityAttribute(t *testing.T) {
	device := &resourcev1.Device{Name: "gpu-0",
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"serial": {StringValue: new("1e-300000000")}}}
	is := Selector(t.Context())
	if _, err := is(`isQuantity(device.attributes["gpu.example.com"].serial)`, "gpu.example.com", device); err == nil ||
		!strings.Contains(err.Error(), "attribute serial of device gpu-0") {
		t.Errorf("the attribute was read as a quantity: %v", err)
	}
	if ok, err := is(`device.attributes["gpu.example.com"].serial == "1e-300000000"`, "gpu.example.com", device); !ok || err != nil {
		t.Errorf("the attribute was not read as a text: %t, %v", ok, err)
	}
}
