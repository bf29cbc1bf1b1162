package quantity_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/kinds/lib/quantity"
)

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"0":                               "",
		"100m":                            "",
		"1.5Gi":                           "",
		"12E":                             "",
		"12Ei":                            "",
		"1e3":                             "",
		"1E-9":                            "",
		"+1e+999":                         "",
		"1e0000000999":                    "",
		"no quantity at all":              "",
		"1e1000":                          quantity.ErrExponent.Error(),
		"1E-1000":                         quantity.ErrExponent.Error(),
		" 1e-300000000 ":                  quantity.ErrExponent.Error(),
		"1e4294967296":                    quantity.ErrExponent.Error(),
		"e300000000":                      quantity.ErrExponent.Error(), // a zero, which takes minutes to compare
		"-E+300000000":                    quantity.ErrExponent.Error(),
		strings.Repeat("7", 256):          "",
		strings.Repeat("7", 257):          quantity.ErrLong.Error(),
		"0." + strings.Repeat("0", 3_000): quantity.ErrLong.Error(),
	} {
		got := ""
		if err := quantity.Check(text); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
		if want == "" {
			continue
		}
		if _, err := quantity.Parse(text); err == nil {
			t.Errorf("%.40q was parsed", text)
		}
		if !quantity.IsSuspicious([]byte(`{"cpu":"` + text + `"}`)) {
			t.Errorf("%.40q is not seen in bytes", text)
		}
	}
}

// TestIsHarmful checks that texts that are no quantities are accepted.
func TestIsHarmful(t *testing.T) {
	for text, want := range map[string]bool{
		"1e-300000000":            true,
		"4e123456":                true, // a hash may begin like this, too
		strings.Repeat("7", 300):  true,
		"1e999":                   false,
		"f4e123456":               false,
		strings.Repeat("x", 300):  false,
		"2e9b1234567890123456789": false,
	} {
		if got := quantity.IsHarmful(text); got != want {
			t.Errorf("%.40q: %t, want %t", text, got, want)
		}
	}
}

const outOfBounds = "1e-300000000"

func TestCheckJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"spec":{"containers":[{},{"resources":{"limits":{"cpu":"` + outOfBounds +
			`"}}}]}}`: "spec.containers[1].resources.limits.cpu: ",
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":` + outOfBounds +
			`}}}]}}`: "spec.containers[0].resources.limits.cpu: ",
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"` + outOfBounds +
			`","cpu":"1"}}}]}}`: "spec.containers[0].resources.limits.cpu: ",
		`{"SPEC":{"overhead":{"cpu":"` + outOfBounds + `"}}}`: "SPEC.overhead.cpu: ",
		`{"spec":{"volumes":[{"name":"a","emptyDir":{"sizeLimit":"` + outOfBounds +
			`"}}]}}`: "spec.volumes[0].emptyDir.sizeLimit: ",
		`{"metadata":{"labels":{"commit":"4e123456"},"name":"4e123456"}}`:                                  "",
		`{"spec":{"containers":[{"name":"4e123456","env":[{"name":"A","value":"` + outOfBounds + `"}]}]}}`: "",
		`{"nothing":{"like":["` + outOfBounds + `",{"cpu":"` + outOfBounds + `"}]}}`:                       "",
		`{"spec":{"overhead":{"cpu": "\u00a0 ` + outOfBounds + ` "}}}`:                                     "spec.overhead.cpu: ",
		`{"spec":{"overhead":{"cpu":   ` + outOfBounds + "\n}}}":                                           "spec.overhead.cpu: ",
		`{"spec":{"overhead":{"cpu":"e300000000"}}}`:                                                       "spec.overhead.cpu: ",
		// the parser rejects it at once
		`{"spec":{"overhead":{"cpu":"a` + outOfBounds + `"}}}`: "",
		`{"spec":{"overhead":{"cpu":"` + outOfBounds + `"`:     "spec.overhead.cpu: ",
		`{"spec":{"overhead":["` + outOfBounds + `"]}}`:        "",
		`[` + outOfBounds:              "",
		outOfBounds:                    "",
		`{"spec" ` + outOfBounds + `}`: "",
	} {
		checkError(t, text, quantity.CheckJSON([]byte(text), reflect.TypeFor[*corev1.Pod]()), want)
		var value map[string]any
		if json.Unmarshal([]byte(text), &value) == nil && !strings.Contains(text, `:`+outOfBounds) &&
			!strings.Contains(text, outOfBounds+"\n") && !strings.Contains(text, `,"cpu":"1"`) {
			checkError(t, text+" as a value", quantity.CheckValue(value, reflect.TypeFor[*corev1.Pod]()), want)
		}
	}
}

func checkError(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil, want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// message returns a protobuf field that is a message or a string.
func message(number byte, body string) string {
	return string([]byte{number<<3 | 2, byte(len(body))}) + body
}

// unreadable is the beginning of the error for messages that no client writes, and that decoders read differently.
const unreadable = "a message with quantities out of bounds"

// TestCheckProto checks that quantities are found in messages that the decoder accepts although no encoder writes them.
func TestCheckProto(t *testing.T) {
	cpu := message(1, "cpu") + message(2, message(1, outOfBounds))
	limit := func(entry string) string { return message(2, message(2, message(8, message(1, entry)))) }
	for name, c := range map[string]struct{ pod, want string }{
		"after a group":                            {"\xa3\x06\x08\x01\xa4\x06" + limit(cpu), unreadable},
		"after a number that is too big":           {"\xa0\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + limit(cpu), unreadable},
		"in a field with a number that is too big": {"\x92\x80\x80\x80\x80\x01" + limit(cpu)[1:], unreadable},
		"in an entry that is no message": {limit(message(1, "cpu") + "\x10" + message(2, message(1, outOfBounds))[1:]),
			unreadable},
		"behind its entry": {limit(message(1, "cpu")+"\x12\x0e") + message(1, outOfBounds), unreadable},
		"a limit": {message(2, message(2, message(8, message(1, cpu)))),
			"spec.containers.resources.limits: "},
		"a field that occurs twice": {message(2, message(2, message(8, message(1, cpu+message(2, message(1, "1")))))),
			"spec.containers.resources.limits: "},
		"after unknown fields": {"\xf8\x07\x01\xf9\x0712345678" + message(2, message(2, message(8, message(1, cpu)))),
			"spec.containers.resources.limits: "},
		"before the end": {message(2, message(2, message(8, message(1, cpu)))) + "\x12\x7f",
			"spec.containers.resources.limits: "},
		"a name":  {message(1, message(1, outOfBounds)), ""},
		"a label": {message(1, message(11, message(1, outOfBounds)+message(2, outOfBounds))), ""},
		"broken":  {"\x12\x7f" + outOfBounds, unreadable},
	} {
		checkError(t, name, new(quantity.Messages).CheckProto([]byte(c.pod), reflect.TypeFor[*corev1.Pod]()), c.want)
	}
}

// FuzzCheck checks that data which passes the checks decodes into quantities within the bounds.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e1000","memory":"12Ei"}}}]}}`))
	f.Add([]byte(message(2, message(2, message(8, message(1, message(1, "cpu")+message(2, message(1, "1e1000"))))))))
	f.Add([]byte("\xa3\x06\x08\x01\xa4\x06" + message(2,
		message(2, message(8, message(1, message(1, "cpu")+"\x10"+message(2, message(1, "1e1000"))[1:]))))))
	f.Fuzz(func(t *testing.T, data []byte) {
		if quantity.CheckJSON(data, reflect.TypeFor[corev1.Pod]()) == nil {
			var pod corev1.Pod
			_ = json.Unmarshal(data, &pod)
			checkBounds(t, &pod)
		}
		if !quantity.IsSuspicious(data) || new(quantity.Messages).CheckProto(data, reflect.TypeFor[corev1.Pod]()) == nil {
			var pod corev1.Pod
			_ = pod.Unmarshal(data)
			checkBounds(t, &pod)
		}
	})
}

func checkBounds(t *testing.T, pod *corev1.Pod) {
	lists := []corev1.ResourceList{pod.Spec.Overhead}
	for i := range pod.Spec.Containers {
		lists = append(lists, pod.Spec.Containers[i].Resources.Limits, pod.Spec.Containers[i].Resources.Requests)
	}
	for _, list := range lists {
		for name, q := range list {
			q.Add(resource.MustParse("1"))
			if n := len(q.String()); n > 2000 {
				t.Errorf("%s has %d digits", name, n)
			}
		}
	}
}
