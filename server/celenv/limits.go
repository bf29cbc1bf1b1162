package celenv

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
)

const (
	// maxBytes limits a text that one call makes. An object has at most 3 MiB.
	maxBytes = 8 << 20
	// maxValues limits the values in one list or map that a call reads to the bottom. The same list may be in it many
	// times, so that a small expression makes one with more values than any memory holds.
	maxValues = 1 << 20
	// maxComparisons limits the comparisons of one call.
	maxComparisons = 1 << 24
	// bytesPerCost is how many bytes a result may have for each unit of cost. Upstream charges a unit for ten bytes of the
	// input, and nothing for a result that is larger. An expression may cost a million units.
	bytesPerCost = 16
	// freeBytes is the size of a result that costs what upstream charges.
	freeBytes = 256
	// maxMacro limits the nodes of an expression that a macro copies. Each of a chain of such macros copies it once more.
	maxMacro = 1 << 14
)

// limits returns the options that bound what an expression allocates and how long a call takes: upstream charges for the
// arguments of a call only, and only after the call. An expression beyond a limit ends like one that costs too much.
func limits(env *cel.Env) (compile []cel.EnvOption, evaluate []cel.ProgramOption, err error) {
	guarded := map[string]*functions.Overload{}
	for name, f := range env.Functions() {
		if exceeds[name] == nil {
			continue
		}
		bindings, err := f.Bindings()
		if err != nil {
			return nil, nil, err
		}
		for _, b := range bindings {
			guarded[b.Operator] = b
		}
	}
	guarded[operators.Equals] = &functions.Overload{Binary: types.Equal}
	guarded[operators.NotEquals] = &functions.Overload{Binary: func(a, b ref.Val) ref.Val {
		return types.Bool(types.Equal(a, b) != types.True)
	}}
	evaluate = append(evaluate, cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok || exceeds[call.Function()] == nil {
			return i, nil
		}
		f := guarded[call.OverloadID()]
		if f == nil {
			f = guarded[call.Function()]
		}
		if f == nil {
			return i, nil
		}
		return &guardedCall{InterpretableCall: call, args: call.Args(), f: f, exceeds: exceeds[call.Function()]}, nil
	}))
	evaluate = append(evaluate, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	var costs []interpreter.CostTrackerOption
	for overload, function := range charged {
		costs = append(costs, interpreter.OverloadCostTracker(overload, chargeResult(function, overload)))
	}
	evaluate = append(evaluate, cel.CostTrackerOptions(costs...))
	for _, m := range env.Macros() {
		if copiesTarget[m.Function()] {
			compile = append(compile, cel.Macros(cel.ReceiverMacro(m.Function(), m.ArgCount(), boundedMacro(m.Expander()))))
		}
	}
	return compile, evaluate, nil
}

// copiesTarget has the macros whose expansion contains the expression before the dot twice.
var copiesTarget = map[string]bool{"optMap": true, "optFlatMap": true}

func boundedMacro(expand parser.MacroExpander) cel.MacroFactory {
	return func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
		nodes := 0
		ast.PostOrderVisit(target, ast.NewExprVisitor(func(ast.Expr) { nodes++ }))
		if nodes > maxMacro {
			return nil, f.NewError(target.ID(), "the expression is too complex: macros copy it too often")
		}
		return expand(f, target, args)
	}
}

// guardedCall is a call that is not made when its arguments show that it would allocate or compute too much.
type guardedCall struct {
	interpreter.InterpretableCall
	args    []interpreter.InterpretableV2
	f       *functions.Overload
	exceeds func([]ref.Val) bool
}

func (c *guardedCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

func (c *guardedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := make([]ref.Val, len(c.args))
	for i, a := range c.args {
		if args[i] = a.Exec(frame); types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	if frame.CheckInterrupt() {
		return types.WrapErr(interpreter.InterruptError{})
	}
	if c.exceeds(args) {
		panic(interpreter.EvalCancelledError{
			Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded",
		})
	}
	return types.LabelErrNode(c.ID(), c.call(args))
}

func (c *guardedCall) call(args []ref.Val) ref.Val {
	switch f := c.f; {
	case f.OperandTrait != 0 && !args[0].Type().HasTrait(f.OperandTrait):
	case f.Unary != nil && len(args) == 1:
		return f.Unary(args[0])
	case f.Binary != nil && len(args) == 2:
		return f.Binary(args[0], args[1])
	case f.Function != nil:
		return f.Function(args...)
	}
	return types.NewErr("no such overload: %s", c.Function())
}

// exceeds has the functions that may allocate or compute much more than upstream charges for beforehand, and whether
// their arguments make them do it.
var exceeds = map[string]func(args []ref.Val) bool{
	"replace": func(args []ref.Val) bool {
		if len(args) < 3 {
			return false
		}
		s, from, to := text(args[0]), text(args[1]), text(args[2])
		n := strings.Count(s, from)
		if len(args) > 3 {
			if limit, ok := args[3].(types.Int); ok && limit >= 0 {
				n = min(n, int(limit))
			}
		}
		return len(s)+n*max(0, len(to)-len(from)) > maxBytes
	},
	"join": func(args []ref.Val) bool {
		separator := ""
		if len(args) > 1 {
			separator = text(args[1])
		}
		m := meter{left: maxValues, bytes: maxBytes, each: len(separator)}
		return !m.add(args[0])
	},
	"format": func(args []ref.Val) bool {
		if len(args) < 2 {
			return false
		}
		// A byte is at most eight digits; numbers have as many decimals as the format says.
		layout := text(args[0])
		m := meter{left: maxValues, bytes: maxBytes / 8, each: 32}
		return precisions(layout) > maxBytes || len(layout) > maxBytes || !m.add(args[1])
	},
	"matches":           largePattern,
	"find":              largePattern,
	"findAll":           largePattern,
	"flatten":           func(args []ref.Val) bool { return values(args[0]) > maxValues },
	"distinct":          func(args []ref.Val) bool { return compares(args[0], args[0]) },
	"sort":              func(args []ref.Val) bool { return values(args[0]) > maxValues },
	"sets.contains":     func(args []ref.Val) bool { return compares(args[0], args[1]) },
	"sets.equivalent":   func(args []ref.Val) bool { return compares(args[0], args[1]) },
	"sets.intersects":   func(args []ref.Val) bool { return compares(args[0], args[1]) },
	operators.In:        func(args []ref.Val) bool { return !isScalar(args[0]) && bothExceed(args[0], args[1]) },
	"includes":          func(args []ref.Val) bool { return bothExceed(args[0], args[0]) },
	"indexOf":           func(args []ref.Val) bool { return bothExceed(args[0], args[0]) },
	"lastIndexOf":       func(args []ref.Val) bool { return bothExceed(args[0], args[0]) },
	operators.Equals:    func(args []ref.Val) bool { return bothExceed(args[0], args[1]) },
	operators.NotEquals: func(args []ref.Val) bool { return bothExceed(args[0], args[1]) },
}

// charged has the overloads whose result may be larger than what upstream charges for, and their functions. The empty
// one is that of calls with several: those with arguments of unknown types.
var charged = map[string]string{
	"string_replace_string_string": "replace", "string_replace_string_string_int": "replace",
	"string_split_string": "split", "string_split_string_int": "split",
	"string_find_all_string": "findAll", "string_find_all_string_int": "findAll",
	"string_format": "format", "strings_quote": "strings.quote", "add_list": operators.Add, "": "",
}

// chargeResult returns the cost of a call: upstream's, or that of its result if it is higher.
func chargeResult(function, overload string) interpreter.FunctionTracker {
	upstream := &library.CostEstimator{}
	return func(args []ref.Val, result ref.Val) *uint64 {
		var size int
		switch {
		case types.IsUnknownOrError(result):
		case len(args) == 2 && isList(args[0]) && isList(args[1]) && isList(result): // lists that are added are not copied
			if n := sizeOf(args[1]); n > bytesPerCost {
				size = bytesPerCost * min(n, sizeOf(args[0]))
			}
		case isList(result):
			if overload != "" {
				size = bytesPerCost * sizeOf(result)
			}
		default:
			size = length(result)
		}
		if size <= freeBytes {
			if function == "" {
				return nil
			}
			return upstream.CallCost(function, overload, args, result)
		}
		cost := uint64(size / bytesPerCost)
		if function != "" {
			if c := upstream.CallCost(function, overload, args, result); c != nil {
				cost = max(cost, *c)
			}
		}
		return &cost
	}
}

// largePattern reports whether a computed regular expression is too large. Literal ones are checked beforehand.
func largePattern(args []ref.Val) bool {
	if len(args) < 2 {
		return false
	}
	pattern := text(args[1])
	return len(pattern) > maxPatterns || strings.Contains(pattern, "{") && PatternSize(pattern) > maxPatterns
}

// compares reports whether a call would make too many comparisons to find each item of a list in another one.
func compares(a, b ref.Val) bool {
	items := sizeOf(a)
	n := values(b)
	return values(a) > maxValues || n > maxValues || items*n > maxComparisons
}

// bothExceed reports whether two values have too many values to compare them.
func bothExceed(a, b ref.Val) bool {
	return !isScalar(a) && !isScalar(b) && values(a) > maxValues && values(b) > maxValues
}

func isScalar(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return false
	}
	return true
}

func isList(v ref.Val) bool {
	_, ok := v.(traits.Lister)
	return ok
}

// sizeOf returns the number of items of a list or map.
func sizeOf(v ref.Val) int {
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

func text(v ref.Val) string {
	s, _ := v.Value().(string)
	return s
}

// length returns the number of bytes of a text.
func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

// precisions adds up the numbers in a format.
func precisions(layout string) (sum int) {
	n := 0
	for _, r := range layout {
		if r >= '0' && r <= '9' {
			n = min(10*n+int(r-'0'), maxBytes)
			continue
		}
		sum, n = min(sum+n, 2*maxBytes), 0
	}
	return sum + n
}

// IsTooLarge reports whether a value is too large to convert it: the same list or text may be in it any number of times.
func IsTooLarge(v ref.Val) bool {
	m := meter{left: maxValues, bytes: maxBytes}
	return !m.add(v)
}

// values counts the values in a list or map, and all lists and maps in it, up to maxValues+1.
func values(v ref.Val) int {
	m := meter{left: maxValues, bytes: 1 << 40}
	if !m.add(v) {
		return maxValues + 1
	}
	return maxValues - m.left
}

// meter adds up the size of a value until a limit is exceeded.
type meter struct{ left, bytes, each int }

// add reports whether a value fits into what is left.
func (m *meter) add(v ref.Val) bool {
	m.left--
	m.bytes -= m.each + length(v)
	if m.left < 0 || m.bytes < 0 {
		return false
	}
	switch v := v.(type) {
	case *types.Optional:
		return !v.HasValue() || m.add(v.GetValue())
	case *mutation.JSONPatchVal:
		return v.Val == nil || m.add(v.Val)
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !m.add(it.Next()) {
				return false
			}
		}
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			if !m.add(key) || !m.add(v.Get(key)) {
				return false
			}
		}
	}
	return true
}
