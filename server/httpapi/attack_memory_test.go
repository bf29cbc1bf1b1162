package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"proa.dev/kinds/lib/codec"
)

// attack is a request that is known to have crashed another server.
type attack struct {
	name, method, path, media, body string
	code                            int
	wantText                        string // a part of the response; may be empty
	maxBytes                        int64  // bytes that may be allocated
}

// sendAttacks sends the attacks, and checks their responses and how much memory they allocate.
func sendAttacks(t *testing.T, r *rig, attacks []attack) {
	t.Helper()
	for _, a := range attacks {
		w := httptest.NewRecorder()
		body := strings.NewReader(a.body)
		used := allocatedBytes(func() { r.send(w, "eve", a.method, a.path, body, "Content-Type: "+a.media) })
		if w.Code != a.code || !strings.Contains(w.Body.String(), a.wantText) {
			t.Errorf("%s: %d, want %d and %q: %.300s", a.name, w.Code, a.code, a.wantText, w.Body)
		}
		if used > a.maxBytes {
			t.Errorf("%s: a body of %d KB made the server allocate %d MB", a.name, len(a.body)>>10, used>>20)
		}
	}
	w := httptest.NewRecorder()
	if r.send(w, "alice", "GET", configMapsPath, nil); w.Code != http.StatusOK {
		t.Errorf("afterwards: %d %.300s", w.Code, w.Body)
	}
}

const yamlMedia, jsonMedia, applyMedia = "application/yaml", "application/json", "application/apply-patch+yaml"

// TestAttackQuadraticYAML is row 9 of the table of attacks in docs/benchmarks.md: YAML that makes a scanner read the same
// bytes again and again, and YAML that is large when decoded. Its cost must be linear in its size, and bounded.
func TestAttackQuadraticYAML(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.create(configMapsResource(), configMap("x"))
	const head = "metadata: {name: a}\nx: "
	for name, bodyOf := range map[string]func(n int) string{
		"sequences in sequences": func(n int) string { return head + "\n" + strings.Repeat("- ", n) },
		"flows in flows":         func(n int) string { return head + strings.Repeat("[", n) },
		"maps in maps":           func(n int) string { return head + strings.Repeat("{a: ", n) },
		"keys and quotes":        func(n int) string { return strings.Repeat("a:\n- ", n) + "[" + strings.Repeat("\"\\u0020", n) },
		"keys without an end":    func(n int) string { return head + "[" + strings.Repeat("? ", n) },
		"indents":                func(n int) string { return head + "\n" + strings.Repeat(" ", n) + strings.Repeat("- a\n", n) },
		"tags":                   func(n int) string { return head + strings.Repeat("!a ", n) },
		"documents":              func(n int) string { return strings.Repeat("--- a\n", n) },
		"lists of maps":          func(n int) string { return head + "\n" + strings.Repeat("- a:\n", n) },
	} {
		for _, v := range [][2]string{{"POST", configMapsPath}, {"PATCH", configMapsPath + "/x?fieldManager=m"}} {
			media := yamlMedia
			if v[0] == "PATCH" {
				media = applyMedia
			}
			cost := func(n int) int64 {
				body := strings.NewReader(bodyOf(n))
				w := httptest.NewRecorder()
				used := allocatedBytes(func() { r.send(w, "eve", v[0], v[1], body, "Content-Type: "+media) })
				if w.Code >= 500 {
					t.Errorf("%s %s: %d %.200s", v[0], name, w.Code, w.Body)
				}
				return used
			}
			small, twice, large := cost(2000), cost(4000), cost(maxBody/8)
			if twice > 3*small+1<<20 {
				t.Errorf("%s %s: %d KB are allocated, and %d KB for twice as much", v[0], name, small>>10, twice>>10)
			}
			if large > 400<<20 {
				t.Errorf("%s %s: %d MB are allocated", v[0], name, large>>20)
			}
		}
	}
	bomb := "metadata: {name: a}\nx:\n - &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf(" - &%c [%s]\n", c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 9))
	}
	sendAttacks(t, r, []attack{{"aliases of aliases", "POST", configMapsPath, yamlMedia, bomb, 400, "excessive aliasing", 256 << 20}})
	// Aliases are decoded before the decoder notices that there are too many, so their cost is counted: five concurrent
	// requests wait for each other.
	if cost := codec.Cost(codec.YAML, []byte(bomb)); cost < r.memory.decoding.PerUser() {
		t.Errorf("a bomb costs %d", cost)
	}
}

// TestAttackUnusualJSON is row 10 of the table of attacks: valid JSON that is nested a million levels deep, wherever JSON
// is read; unusual numbers, bytes and keys.
func TestAttackUnusualJSON(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.create(configMapsResource(), configMap("x"))
	lists := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	maps := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	named := func(rest string) string { return `{"metadata":{"name":"a"},` + rest + `}` }
	const few = 32 << 20
	digits := strings.Repeat("9", 1<<20)
	sendAttacks(t, r, []attack{
		{"lists", "POST", configMapsPath, jsonMedia, named(`"x":` + lists(1000000)), 400, "exceeded max depth", few},
		{"maps", "POST", configMapsPath, jsonMedia, named(`"x":` + maps(500000)), 400, "exceeded max depth", few},
		{"nested lists in an unknown field", "POST", configMapsPath + "?fieldValidation=Ignore", jsonMedia, named(`"x":` + lists(1000000)),
			400,
			"exceeded max depth", few},
		{"lists in YAML", "POST", configMapsPath, yamlMedia, named(`"x":` + lists(500000)), 400, "exceeded max depth", few},
		{"lists to apply", "PATCH", configMapsPath + "/x?fieldManager=m", applyMedia, named(`"x":` + lists(500000)), 400,
			"exceeded max depth",
			few},
		{"lists to merge", "PATCH", configMapsPath + "/x", "application/merge-patch+json", `{"x":` + lists(1000000) + `}`, 400,
			"invalid JSON patch", few},
		{"lists to merge that are not too many", "PATCH", configMapsPath + "/x", "application/merge-patch+json",
			`{"x":` + lists(9000) + `}`, 400,
			"levels deep", few},
		{"maps to merge that are not too many", "PATCH", configMapsPath + "/x", "application/merge-patch+json", maps(9000), 400,
			"levels deep",
			few},
		{"large lists to merge", "PATCH", configMapsPath + "/x", "application/merge-patch+json",
			`{"x":` + strings.Repeat("[", 900) + strings.Repeat("1,", 1<<20) + "1" + strings.Repeat("]", 900) + `}`, 413, "", few},
		{"lists to merge by strategy", "PATCH", configMapsPath + "/x", "application/strategic-merge-patch+json",
			`{"x":` + lists(1000000) + `}`,
			400, "invalid JSON patch", few},
		{"lists in a JSON patch", "PATCH", configMapsPath + "/x", "application/json-patch+json",
			`[{"op":"add","path":"/data/b","value":` + lists(1000000) + `}]`, 400, "invalid JSON patch", few},
		{"lists in options", "DELETE", configMapsPath + "/x", jsonMedia, `{"x":` + lists(1000000) + `}`, 400, "exceeded max depth", few},
		{"a number that is too large", "POST", configMapsPath, jsonMedia, `{"metadata":{"name":"a","generation":` + digits + `}}`, 400,
			"cannot unmarshal number", few},
		{"an exponent that is too large", "POST", "/api/v1/namespaces/ns/services", jsonMedia,
			named(`"spec":{"ports":[{"port":1e999999999}]}`), 400, "cannot unmarshal number", few},
		{"a number in a boolean field", "POST", configMapsPath, jsonMedia, named(`"immutable":` + digits), 400, "cannot unmarshal number",
			few},
		{"duplicate keys", "POST", configMapsPath + "?fieldValidation=Strict", jsonMedia,
			named(`"data":{` + strings.Repeat(`"a":"",`, 200000) + `"b":""}`), 400, "duplicate field", few},
		{"invalid UTF-8 in a name", "POST", configMapsPath, jsonMedia, "{\"metadata\":{\"name\":\"a\xff\xfe\"}}", 422, "", few},
		{"invalid UTF-8 in YAML", "POST", configMapsPath, yamlMedia, "metadata: {name: a}\ndata:\n  a: \xff\xfe\n", 400,
			"invalid leading UTF-8", few},
		{"a NUL", "POST", configMapsPath, jsonMedia, named("\"data\":{\"a\":\"\x00\"}"), 400, "invalid character", few},
		{"a NUL in YAML", "POST", configMapsPath, yamlMedia, "metadata: {name: a}\ndata:\n  a: \"\x00\"\n", 400,
			"control characters are not allowed", few},
		{"a NUL in a name", "POST", configMapsPath, jsonMedia, `{"metadata":{"name":"a\u0000"}}`, 422, "", few},
	})
	// Elsewhere invalid UTF-8 becomes the replacement character, as with upstream's server, and is stored and sent so.
	w := httptest.NewRecorder()
	if r.send(w, "eve", "POST", configMapsPath, strings.NewReader(named("\"data\":{\"a\":\"\xff\"}"))); w.Code != 201 ||
		!strings.Contains(w.Body.String(), `"a":"`+"\ufffd") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestAttackPatchOperations is row 11 of the table of attacks: the number of operations of a JSON patch is limited, and so
// is the size of the document that it produces.
func TestAttackPatchOperations(t *testing.T) {
	r := newMemoryRig(t, 100)
	m := configMap("x")
	m.Data["a"] = strings.Repeat("x", 1000)
	r.create(configMapsResource(), m)
	const patch, refused = "application/json-patch+json", "the server rejected our request due to an error in our request"
	ops := func(n int, op string) string { return "[" + strings.Repeat(op+",", n-1) + op + "]" }
	harmless := `{"op":"test","path":"/metadata/name","value":"x"}`
	sendAttacks(t, r, []attack{
		{"the maximum number of operations", "PATCH", configMapsPath + "/x", patch, ops(10000, harmless), 200, "", 256 << 20},
		{"one more", "PATCH", configMapsPath + "/x", patch, ops(10001, harmless), 413,
			"The allowed maximum operations in a JSON patch is 10000, got 10001", 64 << 20},
		{"100000 copies", "PATCH", configMapsPath + "/x", patch, ops(100000, `{"op":"copy","from":"/data/a","path":"/b"}`), 413,
			"limit is 3145728", 16 << 20},
		{"60000 copies", "PATCH", configMapsPath + "/x", patch, ops(60000, `{"op":"copy","from":"/data/a","path":"/b"}`), 413,
			"The allowed maximum operations", 256 << 20},
		// Each copy makes the document twice as large: 1 KB, 2 KB, ... 16 MB.
		{"copies of copies", "PATCH", configMapsPath + "/x", patch,
			`[{"op":"add","path":"/b","value":["` + strings.Repeat("x", 1000) + `"]},` + ops(14,
				`{"op":"copy","from":"/b","path":"/b/-"}`)[1:], 422, refused, 64 << 20},
		{"many copies of a large value", "PATCH", configMapsPath + "/x", patch, ops(5000, `{"op":"copy","from":"/data/a","path":"/b"}`),
			422,
			refused,
			64 << 20},
	})
}

// TestAttackContinueTokens is the second half of row 13 of the table of attacks; the first is TestUnreadListsAreBounded,
// with ten thousand lists. Continue tokens that are large, old or of a future revision take memory in proportion to their length.
func TestAttackContinueTokens(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.createConfigMaps(40, 20<<10)
	const large = 900 << 10 // a request line has 1 MiB at most
	var attacks []attack
	for name, v := range map[string]struct {
		token string
		code  int
	}{
		"a long start key":                {continueToken(5, strings.Repeat("a", large/2)), 200},
		"a path with many parent folders": {continueToken(5, strings.Repeat("../", large/6)), 400},
		"no token":                        {strings.Repeat("A", large), 400},
		"a future revision":               {continueToken(1<<62, "a"), 504},
		"a negative revision":             {continueToken(-1<<62, "a"), 200},
		"a deep document": {base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("[", large/2) + strings.Repeat("]", large/4))),
			400},
	} {
		attacks = append(attacks, attack{name, "GET", configMapsPath + "?limit=1&continue=" + v.token, "", "", v.code, "", 24 << 20})
	}
	sendAttacks(t, r, attacks)
}

// continueToken returns a continue token as a client may forge one.
func continueToken(rev int64, start string) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":%q}`, rev, start))
}
