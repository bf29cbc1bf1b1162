package kindtest

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
)

// mutations is the environment variable with the number of mutated copies of each case to try.
const mutations = "PROA_KINDS_MUTATIONS"

// Mutate sends randomly mutated requests of the scripts that match pattern both to the kinds and to an upstream
// server, and compares. Without a server it does nothing.
func Mutate(t *testing.T, defs []*kind.Def, pattern string, seed uint64) {
	address := os.Getenv(upstream)
	count, err := strconv.Atoi(os.Getenv(mutations))
	if address == "" || err != nil {
		t.Skipf("set %s and %s to compare with upstream", upstream, mutations)
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, seed))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range Parse(string(text)) {
			for range count {
				if c.Verb != "table" {
					compare(t, defs, oracle{address}, c, random)
				}
			}
		}
	}
}

func compare(t *testing.T, defs []*kind.Def, o oracle, c Case, random *rand.Rand) {
	t.Helper()
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(c.Object), &obj); err != nil {
		t.Fatal(err)
	}
	for range 1 + random.IntN(3) {
		if list := mutationsOf(obj, true); len(list) > 0 {
			list[random.IntN(len(list))](random)
		}
	}
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	if !decodable(defs, text) {
		return
	}
	c.Object = string(text) + "\n"
	want := o.answer(t, defs, &c)
	if strings.HasPrefix(want, "4") { // malformed, or refused for reasons other than validation
		return
	}
	if got := Answer(t, defs, &c); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("%s: %s\n%s%s", c.Verb, c.Title, c.Object, difference(want, got))
	}
}

func decodable(defs []*kind.Def, text []byte) bool {
	var meta metav1.TypeMeta
	if json.Unmarshal(text, &meta) != nil {
		return false
	}
	for _, d := range defs {
		if d.GroupVersionKind == meta.GroupVersionKind() {
			return json.Unmarshal(text, d.New()) == nil
		}
	}
	return false
}

// mutationsOf returns the ways to mutate one value below v.
func mutationsOf(v any, top bool) []func(*rand.Rand) {
	var list []func(*rand.Rand)
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			if top && (key == "apiVersion" || key == "kind" || key == "metadata") {
				continue
			}
			list = append(list, func(r *rand.Rand) {
				if r.IntN(5) == 0 {
					delete(v, key)
				} else {
					v[key] = otherValue(r, v[key])
				}
			})
			list = append(list, mutationsOf(v[key], false)...)
		}
	case []any:
		for i := range v {
			list = append(list, func(r *rand.Rand) { v[i] = otherValue(r, v[i]) })
			list = append(list, mutationsOf(v[i], false)...)
		}
	}
	return list
}

// otherValue returns another value of the same type.
func otherValue(r *rand.Rand, v any) any {
	pick := func(values ...any) any { return values[r.IntN(len(values))] }
	switch v := v.(type) {
	case string:
		return pick("", "A!", "a b", "a", "10%", "150%", "Never", "Always", "OnFailure", "1.2.3.4", "x/y", "a.b/c",
			strings.Repeat("a", 70), "5", "Other", "10.0.0.0/8", "Indexed", "a-", "True", "0-1", v+"x")
	case float64:
		return pick(-1, 0, 1, 7, 100000, 2000000000, v+1)
	case bool:
		return !v
	case []any:
		if len(v) > 0 {
			return append(slices.Clone(v), v[0])
		}
	case map[string]any:
		if r.IntN(3) == 0 {
			return map[string]any{}
		}
		for key := range v {
			if r.IntN(2) == 0 {
				delete(v, key)
			}
		}
	}
	return v
}
