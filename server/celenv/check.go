package celenv

import (
	"errors"
	"regexp/syntax"

	"github.com/google/cel-go/common/ast"
	"k8s.io/apiserver/pkg/cel/environment"
)

const (
	// maxNesting limits how deep an expression nests lists, maps and objects. The time in which the library checks the types
	// grows with a power of it.
	maxNesting = 32
	// computedKeyNesting is what a map with a computed key counts. Its type may contain that of a variable twice, so a chain
	// of such maps doubles the time each time.
	computedKeyNesting = 4
	// maxPatterns limits the regular expressions of one expression together, in instructions of their programs.
	maxPatterns = 10_000
)

var (
	errNesting  = errors.New("the expression nests too many lists, maps or objects")
	errPatterns = errors.New("the regular expressions of the expression are too large")
)

// Checker checks expressions of one object before they are compiled, because the library takes any time and memory to
// compile some. The zero value is ready to use.
type Checker struct {
	// variables is how deep the values of the object's variables are nested.
	variables map[string]int
}

// Check returns what is wrong with an expression. One that cannot be parsed is left to the library.
func (c *Checker) Check(expression string) error {
	_, err := c.check(expression)
	return err
}

// CheckVariable checks the expression of a variable, which later ones may use.
func (c *Checker) CheckVariable(name, expression string) error {
	depth, err := c.check(expression)
	if c.variables == nil {
		c.variables = map[string]int{}
	}
	c.variables[name] = depth
	return err
}

func (c *Checker) check(expression string) (depth int, err error) {
	env, err := Base().Env(environment.StoredExpressions)
	if err != nil {
		return 0, err
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return 0, nil
	}
	patterns := 0
	depth = c.depth(parsed.NativeRep().Expr(), &patterns)
	switch {
	case depth > maxNesting:
		return depth, errNesting
	case patterns > maxPatterns:
		return depth, errPatterns
	}
	return depth, nil
}

// depth returns how deep the value of an expression may be nested, and adds the size of its regular expressions. The
// depth of the parser is limited.
func (c *Checker) depth(e ast.Expr, patterns *int) (n int) {
	deepest := func(all ...ast.Expr) (n int) {
		for _, e := range all {
			n = max(n, c.depth(e, patterns))
		}
		return n
	}
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		if o := s.Operand(); o.Kind() == ast.IdentKind && o.AsIdent() == "variables" {
			return c.variables[s.FieldName()]
		}
		return deepest(s.Operand())
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		switch call.FunctionName() {
		case "matches", "find", "findAll":
			for _, a := range args {
				if a.Kind() == ast.LiteralKind {
					pattern, _ := a.AsLiteral().Value().(string)
					*patterns += PatternSize(pattern)
				}
			}
		case "bind": // a macro of some environments: the last argument may use the others
			for _, a := range args {
				n += deepest(a)
			}
			return n
		}
		if call.IsMemberFunction() {
			n = deepest(call.Target())
		}
		return max(n, deepest(args...))
	case ast.ListKind:
		return 1 + deepest(e.AsList().Elements()...)
	case ast.MapKind:
		own := 1
		for _, entry := range e.AsMap().Entries() {
			entry := entry.AsMapEntry()
			if entry.Key().Kind() != ast.LiteralKind {
				own = computedKeyNesting
			}
			n = max(n, deepest(entry.Key(), entry.Value()))
		}
		return own + n
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			n = max(n, deepest(f.AsStructField().Value()))
		}
		return 1 + n
	case ast.ComprehensionKind: // its steps may use its range, and what it starts with
		l := e.AsComprehension()
		return deepest(l.IterRange()) + deepest(l.AccuInit()) + deepest(l.LoopCondition(), l.LoopStep(), l.Result())
	}
	return 0
}

// PatternSize estimates the length of the program of a regular expression; 0 for an invalid one. The parser limits the
// depth and the repetitions of expressions.
func PatternSize(pattern string) int {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return instructions(re)
}

func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)/2
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n += 1 + instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min+1, re.Max)
	}
	return n
}
