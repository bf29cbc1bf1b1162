package admissionregistration

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Hooks are what these kinds need from the server. The zero value accepts every expression and knows no resources.
type Hooks struct {
	// Compile starts the compilation of the expressions of one object. When composed is true, expressions may
	// refer to the variables compiled before them. It returns what is wrong with an expression, or nil.
	Compile func(composed bool) func(path *field.Path, e Expression) *field.Error
	// Resource names the resource of a kind.
	Resource func(schema.GroupVersionKind) (resource string, found bool)
}

// Use says what an expression is for, which decides the type it must have.
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
	Show string // the bad value of an error
	Name string // of a variable
	// Params and Authorizer say which of these variables there are. Configuration and Patch have the types of patches too.
	Params, Authorizer bool
	// Stored says that the object has had this expression before, so that it may use what newer servers know.
	Stored bool
}

// compiler remembers what one object needs to know about its expressions.
type compiler struct {
	hooks   Hooks
	one     func(*field.Path, Expression) *field.Error
	stored  map[Use]map[string]bool
	matches func(*field.Path, Expression) *field.Error
}

func (h Hooks) start(composed bool) *compiler {
	c := &compiler{hooks: h, stored: map[Use]map[string]bool{}}
	if h.Compile != nil {
		c.one, c.matches = h.Compile(composed), h.Compile(false)
	}
	return c
}

// had notes an expression of the stored object.
func (c *compiler) had(u Use, text string) {
	if c.stored[u] == nil {
		c.stored[u] = map[string]bool{}
	}
	c.stored[u][text] = true
}

func (c *compiler) check(path *field.Path, e Expression) field.ErrorList {
	one := c.one
	known := e.Use
	switch e.Use {
	case Match:
		one = c.matches
	case Variable:
		known = Validation
	case Patch:
		known = Configuration
	case Validation, Message, Audit, Configuration:
	}
	if one == nil {
		return nil
	}
	e.Stored = c.stored[known][e.Text] || c.stored[known][e.Show]
	if e.Show == "" {
		e.Show = e.Text
	}
	if err := one(path, e); err != nil {
		return field.ErrorList{err}
	}
	return nil
}
