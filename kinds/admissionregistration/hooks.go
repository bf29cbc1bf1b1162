package admissionregistration

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Hooks are functions of the server that these kinds need. The zero value accepts every expression and knows no resources.
type Hooks struct {
	// Compile starts the compilation of the expressions of one object. When composed is true, expressions may
	// refer to the variables compiled before them. It returns what is wrong with an expression, or nil.
	Compile func(composed bool) func(path *field.Path, e Expression) *field.Error
	// Resource names the resource of a kind.
	Resource func(schema.GroupVersionKind) (resource string, found bool)
}

// Use is the purpose of an expression, which decides the type of its result.
type Use uint8

// The uses of expressions.
const (
	Match         Use = iota // a condition: bool
	Validation               // bool
	Message                  // string
	Audit                    // string or null
	Variable                 // any
	Configuration            // an object to apply
	Patch                    // a list of JSON patches
)

// Expression is one CEL expression.
type Expression struct {
	Use  Use
	Text string
	Show string // the value that an error quotes; empty for Text
	Name string // of a variable
	// Params and Authorizer tell which of these variables exist. In Configuration and Patch expressions the types of
	// patches exist too.
	Params, Authorizer bool
	// Stored says that the stored object has this expression, so that it may use functions which only newer servers know.
	Stored bool
}

// compiler compiles the expressions of one object. It knows which expressions the stored object has.
type compiler struct {
	compile          func(*field.Path, Expression) *field.Error // nil accepts every expression
	compileCondition func(*field.Path, Expression) *field.Error // match conditions cannot refer to variables
	stored           map[Use]map[string]bool
}

func (h Hooks) start(composed bool) *compiler {
	c := &compiler{stored: map[Use]map[string]bool{}}
	if h.Compile != nil {
		c.compile, c.compileCondition = h.Compile(composed), h.Compile(false)
	}
	return c
}

// addStored records an expression of the stored object.
func (c *compiler) addStored(u Use, text string) {
	if c.stored[u] == nil {
		c.stored[u] = map[string]bool{}
	}
	c.stored[u][text] = true
}

func (c *compiler) check(path *field.Path, e Expression) field.ErrorList {
	compile := c.compile
	storedUse := e.Use // variables and patches are recorded with the uses that they serve
	switch e.Use {
	case Match:
		compile = c.compileCondition
	case Variable:
		storedUse = Validation
	case Patch:
		storedUse = Configuration
	case Validation, Message, Audit, Configuration:
	}
	if compile == nil {
		return nil
	}
	e.Stored = c.stored[storedUse][e.Text] || c.stored[storedUse][e.Show]
	if e.Show == "" {
		e.Show = e.Text
	}
	if err := compile(path, e); err != nil {
		return field.ErrorList{err}
	}
	return nil
}
