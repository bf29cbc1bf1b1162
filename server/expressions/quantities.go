package expressions

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"k8s.io/apiserver/pkg/cel/environment"

	"proa.dev/kinds/quantity"
)

// Reads says what an expression of a definition reads as quantities. The library that evaluates such expressions has no bounds.
type Reads struct {
	// Fields says that it reads some of the fields of an object as they are, Computed that it reads what it has made of them.
	Fields, Computed bool
	// Err says that it reads a literal which is out of bounds.
	Err error
}

// Add adds what another expression reads.
func (r *Reads) Add(other Reads) {
	r.Fields, r.Computed = r.Fields || other.Fields, r.Computed || other.Computed
	if r.Err == nil {
		r.Err = other.Err
	}
}

// Quantities finds the arguments of quantity() and isQuantity() in an expression. One that cannot be parsed, which nobody evaluates, reads
// nothing.
func Quantities(expression string) (out Reads) {
	if !strings.Contains(expression, "uantity") {
		return out
	}
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.StoredExpressions)
	if err != nil {
		return Reads{Computed: true}
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return out
	}
	p := paths{}
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			c := e.AsComprehension()
			for _, v := range []string{c.IterVar(), c.IterVar2()} {
				p[v] = append(p[v], c.IterRange())
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
		if call.IsMemberFunction() { // it can be called either way
			args = append(slices.Clone(args), call.Target())
		}
		for _, arg := range args {
			out.Add(p.reads(arg))
		}
	}))
	return out
}

// paths knows what the variables of loops go through.
type paths map[string][]ast.Expr

func (p paths) reads(arg ast.Expr) Reads {
	if arg.Kind() == ast.LiteralKind {
		text, _ := arg.AsLiteral().Value().(string)
		return Reads{Err: quantity.Check(text)}
	}
	whole := p.leadsFromSelf(arg, 0)
	return Reads{Fields: whole, Computed: !whole}
}

// maxLoops is how many loops within each other are followed.
const maxLoops = 16

// leadsFromSelf says that an expression is a field of the object as it is.
func (p paths) leadsFromSelf(e ast.Expr, depth int) bool {
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
			ranges, ofLoop := p[name]
			if !ofLoop {
				return name == "self" || name == "oldSelf"
			}
			return depth < maxLoops && !slices.ContainsFunc(ranges, func(r ast.Expr) bool { return !p.leadsFromSelf(r, depth+1) })
		default:
			return false
		}
	}
}
