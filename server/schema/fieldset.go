package schema

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// set is a set of fields as a tree, in the shape of its JSON form: a node has a name for each child, and may be a
// member itself. Names are the keys of the JSON form, still escaped, without quotes. A field has exactly one such name,
// so names are compared as text and never parsed, which is what makes a set cheap.
//
// Sets are immutable once built, and share nodes.
type set struct {
	member   bool
	children []child
}

type child struct {
	name string
	set  *set
}

// leafSet is the set of one field without children. It is shared, as all sets are.
var leafSet = &set{member: true}

func (s *set) empty() bool { return s == nil || (!s.member && len(s.children) == 0) }

// node returns a set, or nil if it would be empty.
func node(member bool, kids []child) *set {
	if !member && len(kids) == 0 {
		return nil
	}
	return &set{member: member, children: kids}
}

// minus returns a without the members of b. It returns a itself when that changes nothing.
func (a *set) minus(b *set) *set {
	if a.empty() || b.empty() {
		return a
	}
	member := a.member && !b.member
	changed := member != a.member
	kids := a.children
	for i, j := 0, 0; i < len(a.children) && j < len(b.children); {
		switch c := compareNames(a.children[i].name, b.children[j].name); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			if left := a.children[i].set.minus(b.children[j].set); left != a.children[i].set {
				if !changed || len(kids) == len(a.children) && &kids[0] == &a.children[0] {
					kids = slices.Clone(a.children)
				}
				changed = true
				kids[i].set = left
			}
			i++
			j++
		}
	}
	if !changed {
		return a
	}
	if len(kids) > 0 && &kids[0] != &a.children[0] {
		kids = slices.DeleteFunc(kids, func(k child) bool { return k.set.empty() })
	}
	return node(member, kids)
}

// plus returns the members of both.
func (a *set) plus(b *set) *set {
	if b.empty() {
		return a
	}
	if a.empty() {
		return b
	}
	kids := make([]child, 0, len(a.children)+len(b.children))
	i, j := 0, 0
	for i < len(a.children) && j < len(b.children) {
		switch c := compareNames(a.children[i].name, b.children[j].name); {
		case c < 0:
			kids = append(kids, a.children[i])
			i++
		case c > 0:
			kids = append(kids, b.children[j])
			j++
		default:
			kids = append(kids, child{a.children[i].name, a.children[i].set.plus(b.children[j].set)})
			i++
			j++
		}
	}
	kids = append(append(kids, a.children[i:]...), b.children[j:]...)
	return &set{member: a.member || b.member, children: kids}
}

// compareNames orders names as the JSON form does: fields, then keys, then values, each by content.
func compareNames(a, b string) int {
	if a == b {
		return 0
	}
	if a[0] != b[0] {
		return cmp.Compare(strings.IndexByte("fkvi", a[0]), strings.IndexByte("fkvi", b[0]))
	}
	if a[0] == 'f' && strings.IndexByte(a, '\\') < 0 && strings.IndexByte(b, '\\') < 0 {
		return strings.Compare(a, b)
	}
	x, errX := fieldpath.DeserializePathElement(unescape(a))
	y, errY := fieldpath.DeserializePathElement(unescape(b))
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return x.Compare(y)
}

// json appends the JSON form.
func (s *set) json(b []byte) []byte {
	if s == nil {
		return append(b, "{}"...)
	}
	b = append(b, '{')
	if s.member && len(s.children) > 0 {
		b = append(b, `".":{},`...)
	}
	for i, k := range s.children {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, k.name...)
		b = append(b, '"', ':')
		b = k.set.json(b)
	}
	return append(b, '}')
}

var errForm = errors.New("not the canonical form of a field set")

// parseSet parses the JSON form that json writes. Any other JSON is an error, even if it means the same.
func parseSet(text string) (*set, error) {
	p := setParser{text: text}
	s, err := p.object(0)
	if err != nil {
		return nil, err
	}
	if p.text != "" || (s.member && len(s.children) > 0) {
		return nil, errForm
	}
	return node(false, s.children), nil // the root is not a field
}

type setParser struct{ text string }

// maxSetDepth limits the recursion; real objects are some ten levels deep.
const maxSetDepth = 200

func (p *setParser) eat(c byte) bool {
	if p.text == "" || p.text[0] != c {
		return false
	}
	p.text = p.text[1:]
	return true
}

func (p *setParser) object(depth int) (*set, error) {
	if depth > maxSetDepth || !p.eat('{') {
		return nil, errForm
	}
	if p.eat('}') {
		return leafSet, nil
	}
	s := &set{}
	for {
		name, ok := p.name()
		if !ok || !p.eat(':') {
			return nil, errForm
		}
		if name == "." {
			if s.member || len(s.children) > 0 || !p.eat('{') || !p.eat('}') {
				return nil, errForm
			}
			s.member = true
		} else {
			if len(name) < 2 || name[1] != ':' || strings.IndexByte("fkvi", name[0]) < 0 {
				return nil, errForm
			}
			if n := len(s.children); n > 0 && compareNames(s.children[n-1].name, name) >= 0 {
				return nil, errForm
			}
			below, err := p.object(depth + 1)
			if err != nil {
				return nil, err
			}
			s.children = append(s.children, child{name, below})
		}
		if p.eat('}') {
			if len(s.children) == 0 {
				return nil, errForm // a field without children is written without the dot
			}
			return s, nil
		}
		if !p.eat(',') {
			return nil, errForm
		}
	}
}

// name reads a quoted string and returns what is between the quotes, still escaped.
func (p *setParser) name() (string, bool) {
	if !p.eat('"') {
		return "", false
	}
	for i := 0; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			name := p.text[:i]
			p.text = p.text[i+1:]
			return name, true
		case c == '\\':
			i++
		case c < 0x20:
			return "", false
		}
	}
	return "", false
}

const hexDigits = "0123456789abcdef"

// escape escapes a name as the library escapes object keys: what JSON demands and no more.
func escape(s string) string {
	i := 0
	for i < len(s) && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\' {
		i++
	}
	if i == len(s) {
		return s
	}
	b := append(make([]byte, 0, len(s)+8), s[:i]...)
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

// unescape undoes escape. Escapes that escape never writes are left as they are.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			if i+4 < len(s) && s[i+1] == '0' && s[i+2] == '0' {
				hi, lo := strings.IndexByte(hexDigits, s[i+3]), strings.IndexByte(hexDigits, s[i+4])
				if hi >= 0 && lo >= 0 {
					b = append(b, byte(hi<<4|lo))
					i += 4
					continue
				}
			}
			b = append(b, '\\', 'u')
		default:
			b = append(b, s[i])
		}
	}
	return string(b)
}
