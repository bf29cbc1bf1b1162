package proa

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// source is one parsed Go file.
type source struct {
	name   string // from the root
	folder string
	test   bool
	set    *token.FileSet
	ast    *ast.File
}

var parsed = sync.OnceValues(parseAll)

// sources are the Go files of this module, except generated ones.
func sources(t *testing.T) []*source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parseAll() (out []*source, err error) {
	set := token.NewFileSet()
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// Folders with a go.mod are other modules, with rules of their own.
			if _, err := os.Stat(filepath.Join(name, "go.mod")); name != "." &&
				(err == nil || d.Name() == "testdata" || d.Name()[0] == '.' || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.IsGenerated(file) {
			return nil
		}
		name = filepath.ToSlash(name)
		out = append(out, &source{name: name, folder: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), set: set, ast: file})
		return nil
	})
	return out, err
}

func (f *source) imports() (out []string) {
	for _, i := range f.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		out = append(out, p)
	}
	return out
}

func (f *source) at(n ast.Node) string { return f.set.Position(n.Pos()).String() }

func (f *source) lines() int { return f.set.File(f.ast.Pos()).LineCount() }

// The budgets. Much less is wanted: 400 lines a file, 60 a function.
const (
	maxFile     = 800
	maxFunction = 100
)

// overBudget lists the files and functions that are known to be too long, with their length. The numbers may only get smaller; an
// entry is removed when its file or function is within the budget.
var overBudget = map[string]int{}

func TestBudgets(t *testing.T) {
	found := map[string]bool{}
	check := func(name string, lines, budget int) {
		known, listed := overBudget[name]
		found[name] = found[name] || listed && lines > budget
		switch {
		case lines > max(budget, known):
			t.Errorf("%s has %d lines, more than %d; one idea a file, one thought a function", name, lines, max(budget, known))
		case listed && lines > budget && lines < known:
			t.Errorf("%s has got down to %d lines; lower its number in overBudget", name, lines)
		}
	}
	for _, f := range sources(t) {
		check(f.name, f.lines(), maxFile)
		if f.test {
			continue // a test reads like a list
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				check(fmt.Sprintf("%s: %s", f.name, fn.Name.Name), f.length(fn), maxFunction)
			}
		}
	}
	for name := range overBudget {
		if !found[name] {
			t.Errorf("%s is within its budget; take it out of overBudget", name)
		}
	}
}

// length counts the lines of a function without those of its tables, which are data.
func (f *source) length(fn *ast.FuncDecl) int {
	line := func(p token.Pos) int { return f.set.Position(p).Line }
	n := line(fn.End()) - line(fn.Pos()) + 1
	ast.Inspect(fn.Body, func(node ast.Node) bool {
		lit, ok := node.(*ast.CompositeLit)
		if ok {
			n -= line(lit.Rbrace) - line(lit.Lbrace)
		}
		return !ok
	})
	return n
}

// TestDependencies checks that every direct dependency is listed with a reason.
func TestDependencies(t *testing.T) {
	const list = "docs/adr/0008-dependencies.md"
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var direct []string
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) == 2 && strings.HasPrefix(fields[1], "v") {
			direct = append(direct, fields[0])
			if !strings.Contains(string(reasons), "`"+fields[0]+"`") {
				t.Errorf("go.mod requires %s, but %s does not say why", fields[0], list)
			}
		}
	}
	for line := range strings.Lines(string(reasons)) {
		row := strings.SplitN(line, "`", 3)
		if strings.HasPrefix(line, "| `") && !slices.Contains(direct, row[1]) {
			t.Errorf("%s gives a reason for %s, which go.mod does not require directly", list, row[1])
		}
	}
}

// TestLinker builds proa and checks that nothing makes the linker keep every exported method of every type: a call of reflect's
// Method or MethodByName with a name that is not constant. That costs 30 MB of binary and 14 MB of memory. The test takes long, so
// only "make lint" runs it.
func TestLinker(t *testing.T) {
	if os.Getenv("PROA_LINK_TEST") == "" {
		t.Skip("PROA_LINK_TEST is not set; make lint sets it")
	}
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-ldflags", "-dumpdep", "-o", filepath.Join(t.TempDir(), "proa"),
		"./cmd/proa")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if err != nil && !strings.Contains(line, " -> ") {
			t.Error(strings.TrimSpace(line)) // a message of the compiler, not of the linker
		}
		if strings.Contains(line, "ReflectMethod>") {
			t.Errorf("%s calls methods by name", strings.TrimSpace(line))
		}
	}
	if err != nil || !strings.Contains(string(out), " -> ") {
		t.Fatalf("the linker shows nothing: %v", err)
	}
}

// hasHeading reports whether a file of the documentation has a heading to which #anchor leads.
func hasHeading(t *testing.T, name, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dropped := regexp.MustCompile("[^a-z0-9 _-]")
	for line := range strings.Lines(string(text)) {
		title, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if isHeading && strings.HasPrefix(line, "#") &&
			strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

// TestLinks checks that links between files of the documentation lead to files, and to headings in them, that exist.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	check := func(name string) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			at := name
			if target != "" {
				at = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(at); err != nil || heading != "" && !hasHeading(t, at, heading) {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			check(name)
		}
	}
}

// TestEveryClientDecidesAboutRedirects checks that no HTTP client of the product follows redirects by default: an answer must not
// decide which other server gets the request, or which address this machine connects to.
func TestEveryClientDecidesAboutRedirects(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || strings.HasPrefix(f.folder, "test/") || strings.HasSuffix(f.folder, "test") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if isHTTP(n.Type, "Client") && !slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
					pair, ok := e.(*ast.KeyValueExpr)
					if !ok {
						return false
					}
					key, ok := pair.Key.(*ast.Ident)
					return ok && key.Name == "CheckRedirect"
				}) {
					t.Errorf("%s: an http.Client without CheckRedirect follows redirects; refuse them with http.ErrUseLastResponse", f.at(n))
				}
			case *ast.SelectorExpr:
				for _, name := range []string{"DefaultClient", "Get", "Post", "PostForm", "Head"} {
					if isHTTP(n, name) {
						t.Errorf("%s: http.%s follows redirects; use a client that refuses them", f.at(n), name)
					}
				}
			}
			return true
		})
	}
}

// TestQuantitiesAreParsedInOnePlace checks that the product parses quantities only within the bounds of kinds/lib/quantity.
func TestQuantitiesAreParsedInOnePlace(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || f.folder == "kinds/lib/quantity" || strings.HasPrefix(f.folder, "test/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && isOf("resource", e, "ParseQuantity") {
				t.Errorf("%s: some quantities take minutes to parse; use quantity.Parse", f.at(n))
			}
			return true
		})
	}
}

// isHTTP reports whether an expression is a name of the package net/http.
func isHTTP(e ast.Expr, name string) bool { return isOf("http", e, name) }

// isOf reports whether an expression is a name of a package.
func isOf(pkg string, e ast.Expr, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	p, ok := s.X.(*ast.Ident)
	return ok && p.Name == pkg
}

// TestTrustTableNamesTests checks that every test exists which the security guide names as the proof of a row.
func TestTrustTableNamesTests(t *testing.T) {
	text, err := os.ReadFile("docs/guide/security.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, f := range sources(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test {
				have[fn.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) == 0 {
		t.Fatal("docs/guide/security.md names no tests")
	}
	for _, m := range named {
		if !have[m[1]] {
			t.Errorf("docs/guide/security.md names %s, and there is no such test; name the one that proves the row", m[1])
		}
	}
}
