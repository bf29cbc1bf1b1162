package celenv

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// program compiles an expression over a text of 10 KB, a computed pattern, and a value of any type.
func program(t *testing.T, set *environment.EnvSet, expression string) (evaluate func() (uint64, string, error), err error) {
	env, err := set.StoredExpressionsEnv().Extend(
		cel.Variable("s", cel.StringType), cel.Variable("pattern", cel.StringType), cel.Variable("any", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	compiled, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	p, err := env.Program(compiled)
	if err != nil {
		return nil, err
	}
	return func() (uint64, string, error) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		out, details, err := p.ContextEval(ctx, map[string]any{
			"s": strings.Repeat("a", 10<<10), "pattern": strings.Repeat("(a{1,1000})", 20),
			"any": map[string]any{"a": []any{"b", "c"}, "n": "x"},
		})
		if err != nil {
			return 0, "", err
		}
		text := ""
		if v, ok := out.Value().(bool); ok {
			text = map[bool]string{true: "true", false: "false"}[v]
		}
		return *details.ActualCost(), text, nil
	}, nil
}

// TestExpressionsAreBounded evaluates small expressions that would allocate, or compute with, very much.
func TestExpressionsAreBounded(t *testing.T) {
	n := strings.Repeat
	for _, expression := range []string{
		`s.replace('', s) == ''`,
		`s.replace('a', s, 900) == ''`,
		`lists.range(300).map(x, s.replace('a', '12345678')).size() > 0`,
		`lists.range(5000).map(x, s).join() == ''`,
		`lists.range(1100).map(x, 'a').join(s) == ''`,
		`'` + n("%s", 1000) + `'.format(lists.range(1000).map(x, s)) == ''`,
		`'%s'.format([[dyn('ab')]` + n(`.map(x, [x, x])`, 20) + `]) == ''`,
		`[dyn(s)]` + n(`.map(x, x + x)`, 12) + `.size() > 0`,
		`[dyn('0123456789')]` + n(`.map(x, x + x)`, 22) + `.size() > 0`,
		`[['a']]` + n(`.map(x, x + x)`, 24) + `.size() > 0`,
		`[dyn(['a'])]` + n(`.map(x, [x, x])`, 20) + `.all(x, x == x)`,
		`[dyn(['a'])]` + n(`.map(x, [x, x])`, 20) + `.all(x, x != x)`,
		`[dyn(['a'])]` + n(`.map(x, [x, x])`, 20) + `.all(x, x in [x])`,
		`[dyn(['a'])]` + n(`.map(x, [x, x])`, 20) + `.flatten(30).size() > 0`,
		`lists.range(200).all(x, s.split('').size() > 0)`,
		`lists.range(200).all(x, s.findAll('').size() > 0)`,
		`lists.range(10000).distinct().size() > 0`,
		`sets.contains(lists.range(10000), lists.range(10000))`,
		`sets.equivalent(lists.range(10000), lists.range(10000))`,
		`s.matches(pattern)`,
		`s.find(pattern) == ''`,
	} {
		evaluate, err := program(t, Base(), expression)
		if err != nil {
			t.Errorf("%.60s: %v", expression, err)
			continue
		}
		if cost, _, err := evaluate(); err == nil || !strings.HasPrefix(err.Error(), "operation cancelled: actual cost limit exceeded") {
			t.Errorf("%.60s: cost %d, %v", expression, cost, err)
		}
	}
}

// TestOrdinaryExpressionsCostTheSame compares with the environment as it is published.
func TestOrdinaryExpressionsCostTheSame(t *testing.T) {
	bounded := Base()
	environment.DisableBaseEnvSetCachingForTests()
	published := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	for _, expression := range []string{
		`any.a.all(x, x in ['b', 'c']) && any.a == ['b', 'c'] && any.n != 'y'`,
		`'name: {}'.replace('{}', any.n) == 'name: x'`,
		`s.replace('aa', 'b').size() == 5120`,
		`any.a.join(', ') == 'b, c' && 'a,b'.split(',') == any.a || true`,
		`'%s has %d items, %.2f'.format([any, any.a.size(), 1.5]) != ''`,
		`any.a.map(x, x + '-suffix').exists(x, x.startsWith('b'))`,
		`(any.a + ['d']).size() == 3 && dyn(any.a) + dyn(any.a) != []`,
		`'a-b'.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && 'a1b2'.findAll('[0-9]').size() == 2`,
		`sets.contains(['a', 'b'], ['b']) && [2, 1].sort() == [1, 2] && [1, 1].distinct() == [1] && [[1], [2]].flatten() == [1, 2]`,
		`any.a.indexOf('c') == 1 && 'abc'.indexOf('c') == 2 && 'c' in any.a && !('z' in any) && {'k': any.n} == {'k': 'x'}`,
		`optional.of(any.a).optMap(x, x.size()).orValue(0) == 2 && optional.of(1) == optional.of(1)`,
		`any.a == 1 || any.a != 1`, `dyn(1) == dyn('a') || dyn(1) in [1.0]`, `has(any.q) && any.q.r == 1`,
	} {
		want, err := program(t, published, expression)
		if err != nil {
			t.Fatal(err)
		}
		got, err := program(t, bounded, expression)
		if err != nil {
			t.Fatal(err)
		}
		cost, out, err := got()
		wantCost, wantOut, wantErr := want()
		if err != nil || wantErr != nil || cost != wantCost || out != wantOut || cost == 0 {
			t.Errorf("%s: %d, %s, %v, want %d, %s, %v", expression, cost, out, err, wantCost, wantOut, wantErr)
		}
	}
	for _, expression := range []string{`dyn(1) + dyn('a') == 1`, `any.missing == 1`, `dyn(1) in dyn(2)`} {
		want, _ := program(t, published, expression)
		got, _ := program(t, bounded, expression)
		_, _, wantErr := want()
		if _, _, err := got(); err == nil || err.Error() != wantErr.Error() {
			t.Errorf("%s: %v, want %v", expression, err, wantErr)
		}
	}
}

// TestMacrosCopyNoBombs parses an expression of half a kilobyte with 2^20 copies of its beginning.
func TestMacrosCopyNoBombs(t *testing.T) {
	for _, macro := range []string{`.optMap(x, x)`, `.optFlatMap(x, optional.of(x))`} {
		if _, err := program(t, Base(), `optional.of(1)`+strings.Repeat(macro, 20)+`.hasValue()`); err == nil ||
			!strings.Contains(err.Error(), "macros copy it too often") {
			t.Errorf("%s: %.200v", macro, err)
		}
	}
}

// TestCheck checks expressions that take minutes to compile, or memory for their regular expressions.
func TestCheck(t *testing.T) {
	n := strings.Repeat
	for expression, want := range map[string]error{
		`[1]` + n(`.map(x, {x: x})`, 14) + `.size() > 0`:                                                               errNesting,
		`[1]` + n(`.map(x, {'a': [x, x]})`, 20) + `.size() > 0`:                                                        errNesting,
		n(`[`, 100) + n(`]`, 100) + ` == []`:                                                                           errNesting,
		n(`cel.bind(x, [[x]], `, 20) + `x` + n(`)`, 20):                                                                errNesting,
		n(`'a'.matches('`+n(`(a{1,1000})`, 5)+`') && `, 5) + `true`:                                                    errPatterns,
		`'a'.find('` + n(`(a{1,1000})`, 20) + `') == ''`:                                                               errPatterns,
		`self.labels.all(k, self.labels[k].matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'))`:                           nil,
		`self.items.map(x, {'name': x.name, 'ports': [x.port]}).transformMapEntry(i, x, {x.name: x.ports}).size() > 0`: nil,
		`{'a': 1`: nil,
	} {
		if err := new(Checker).Check(expression); err != want {
			t.Errorf("%.60s: %v, want %v", expression, err, want)
		}
	}
	var c Checker
	for i := range 4 {
		from := n("x", i)
		if err := c.CheckVariable(from+"x", `[variables.`+from+`]`+n(`.map(x, {x: x})`, 3)+`[0]`); (err != nil) != (i > 1) {
			t.Errorf("variable %d: %v", i, err)
		}
	}
}
