package proa

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"go/types"
	"os"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

// The rules of this file keep the code easy to read for newcomers. Each test prints every place that breaks its rule.
const (
	maxLine       = 140 // columns, with a tab as four
	maxParameters = 5   // of a function; context.Context does not count
)

// TestLineLength checks that lines fit on a screen. A line that is mostly text in quotes may be longer.
func TestLineLength(t *testing.T) {
	for _, f := range sources(t) {
		src, err := os.ReadFile(f.name)
		if err != nil {
			t.Fatal(err)
		}
		long := linesOfLongStrings(f, src)
		for i, line := range strings.Split(string(src), "\n") {
			columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
			if columns > maxLine && !long[i+1] && !strings.HasPrefix(line, "//go:") {
				t.Errorf("%s:%d: the line has %d columns, more than %d", f.name, i+1, columns, maxLine)
			}
		}
	}
}

// linesOfLongStrings returns the lines whose string literals together are longer than half a line: breaking them would
// make the text harder to find.
func linesOfLongStrings(f *source, src []byte) map[int]bool {
	set := token.NewFileSet()
	file := set.AddFile(f.name, -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	long, sum := map[int]bool{}, map[int]int{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return long
		}
		if tok != token.STRING {
			continue
		}
		line := set.Position(pos).Line
		sum[line] += len(text)
		for i := range strings.Count(text, "\n") + 1 {
			long[line+i] = long[line+i] || sum[line] > maxLine/2
		}
	}
}

// TestParameters checks that calls can be read: more than five values belong into a struct with named fields.
func TestParameters(t *testing.T) {
	for _, f := range sources(t) {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || f.test {
				continue
			}
			n := 0
			for _, p := range fn.Type.Params.List {
				if s, ok := p.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Context" {
					continue
				}
				n += max(1, len(p.Names))
			}
			if n > maxParameters {
				t.Errorf("%s: %s has %d parameters, more than %d; use a struct with named fields", f.at(fn), fn.Name.Name, n, maxParameters)
			}
		}
	}
}

// TestCommentsStartWithTheName checks that the comments of functions, types, and single variables and constants start with their name.
func TestCommentsStartWithTheName(t *testing.T) {
	for _, f := range sources(t) {
		check := func(doc *ast.CommentGroup, name string) {
			if doc == nil {
				return
			}
			text := strings.TrimSpace(doc.Text())
			if text == "" {
				return // a directive
			}
			first := strings.TrimRight(strings.Fields(text)[0], ",:.'")
			if strings.TrimSuffix(first, "'s") != name && first != "Deprecated" {
				t.Errorf("%s: the comment must start with %s", f.at(doc), name)
			}
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(d.Doc, d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						check(s.Doc, s.Name.Name)
						if !d.Lparen.IsValid() {
							check(d.Doc, s.Name.Name)
						}
					case *ast.ValueSpec:
						if len(s.Names) == 1 && !d.Lparen.IsValid() && s.Names[0].Name != "_" {
							check(d.Doc, s.Names[0].Name)
						}
					}
				}
			}
		}
	}
}

// TestNothingIsShadowed checks that no name hides a predeclared identifier or an imported package.
func TestNothingIsShadowed(t *testing.T) {
	for _, f := range sources(t) {
		taken := map[string]string{}
		for _, name := range types.Universe.Names() {
			taken[name] = "the builtin"
		}
		for _, i := range f.ast.Imports {
			name := path.Base(strings.Trim(i.Path.Value, `"`))
			if i.Name != nil {
				name = i.Name.Name
			}
			taken[name] = "the imported package"
		}
		report := func(id *ast.Ident) {
			if what := taken[id.Name]; what != "" && id.Name != "_" && id.Name != "." {
				t.Errorf("%s: %s hides %s", f.at(id), id.Name, what)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			for _, id := range declared(n) {
				report(id)
			}
			return true
		})
	}
}

// declared returns the names that a node declares: parameters, results, variables, functions and types, not fields and methods.
func declared(n ast.Node) (out []*ast.Ident) {
	fields := func(l *ast.FieldList) {
		if l == nil {
			return
		}
		for _, p := range l.List {
			out = append(out, p.Names...)
		}
	}
	switch n := n.(type) {
	case *ast.FuncType:
		fields(n.Params)
		fields(n.Results)
	case *ast.FuncDecl:
		fields(n.Recv)
		if n.Recv == nil {
			out = append(out, n.Name)
		}
	case *ast.ValueSpec:
		out = append(out, n.Names...)
	case *ast.TypeSpec:
		out = append(out, n.Name)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok {
					out = append(out, id)
				}
			}
		}
	case *ast.RangeStmt:
		for _, e := range []ast.Expr{n.Key, n.Value} {
			if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
				out = append(out, id)
			}
		}
	}
	return out
}
