package celenv

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"k8s.io/apiserver/pkg/cel/environment"

	"proa.dev/kinds/lib/quantity"
)

// Reads describes what an expression of a definition or a device request reads as quantities. The library that
// evaluates such expressions has no limits.
type Reads struct {
	// Fields says that it reads fields of an object unchanged, Computed that it reads computed texts, and Function the
	// function with which it reads the latter.
	Fields, Computed bool
	Function         string
	// Err is set if it reads a literal which is out of bounds.
	Err error
}

// Add adds what another expression reads.
func (r *Reads) Add(other Reads) {
	r.Fields, r.Computed = r.Fields || other.Fields, r.Computed || other.Computed
	r.Function = cmp.Or(r.Function, other.Function)
	if r.Err == nil {
		r.Err = other.Err
	}
}

// MayReadQuantities is a cheap check whether an expression may call quantity() or isQuantity().
func MayReadQuantities(expression string) bool { return strings.Contains(expression, "uantity") }

// Quantities analyses the arguments of quantity() and isQuantity() in an expression. objects are the names of the
// variables that hold the object. An expression that cannot be parsed is never evaluated, so it reads nothing.
func Quantities(expression string, objects ...string) (out Reads) {
	if !MayReadQuantities(expression) {
		return out
	}
	env, err := Base().Env(environment.StoredExpressions)
	if err != nil {
		return Reads{Computed: true, Function: "quantity"}
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return out
	}
	p := paths{objects: objects, loops: map[string][]ast.Expr{}}
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			c := e.AsComprehension()
			for _, v := range []string{c.IterVar(), c.IterVar2()} {
				p.loops[v] = append(p.loops[v], c.IterRange())
			}
		}
	}))
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		call := e.AsCall()
		if name := call.FunctionName(); name != "quantity" && name != "isQuantity" {
			return
		}
		args := call.Args()
		if call.IsMemberFunction() { // both forms of the call are valid
			args = append(slices.Clone(args), call.Target())
		}
		for _, arg := range args {
			out.Add(p.reads(call.FunctionName(), arg))
		}
	}))
	return out
}

// paths holds the variables of an expression: those for the object, and the ranges of those in loops.
type paths struct {
	objects []string
	loops   map[string][]ast.Expr
}

func (p paths) reads(function string, arg ast.Expr) Reads {
	if arg.Kind() == ast.LiteralKind {
		text, _ := arg.AsLiteral().Value().(string)
		return Reads{Err: quantity.Check(text)}
	}
	if p.isField(arg, 0) {
		return Reads{Fields: true}
	}
	return Reads{Computed: true, Function: function}
}

// maxLoops is the depth of nested loops that is analysed.
const maxLoops = 16

// isField reports whether an expression is an unchanged field of the object.
func (p paths) isField(e ast.Expr, depth int) bool {
	for {
		switch e.Kind() {
		case ast.SelectKind:
			e = e.AsSelect().Operand()
		case ast.CallKind:
			call := e.AsCall()
			if call.FunctionName() != operators.Index || len(call.Args()) != 2 {
				return false
			}
			e = call.Args()[0]
		case ast.IdentKind:
			name := e.AsIdent()
			ranges, ofLoop := p.loops[name]
			if !ofLoop {
				return slices.Contains(p.objects, name)
			}
			return depth < maxLoops && !slices.ContainsFunc(ranges, func(r ast.Expr) bool { return !p.isField(r, depth+1) })
		default:
			return false
		}
	}
}
