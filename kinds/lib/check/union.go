package check

import "k8s.io/apimachinery/pkg/util/validation/field"

// Union checks a struct of which at most one field may be set.
type Union struct {
	Path      *field.Path
	TooMany   string // the message if a second field is set
	Found     int    // how many fields have been validated
	ErrorList field.ErrorList
}

// UnionMember checks one field of a union: it validates the first that is set and refuses any further one. inside is the name
// that the messages about the parts of the field use, where that is not the field's own name.
func UnionMember[S any](u *Union, s *S, name string, validate func(*S, *field.Path) field.ErrorList, inside ...string) {
	if s == nil {
		return
	}
	if u.Found > 0 {
		u.ErrorList = append(u.ErrorList, field.Forbidden(u.Path.Child(name), u.TooMany))
		return
	}
	u.Found++
	if len(inside) > 0 {
		name = inside[0]
	}
	u.ErrorList = append(u.ErrorList, validate(s, u.Path.Child(name))...)
}
