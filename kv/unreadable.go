package kv

import "fmt"

// Unreadable is the error of a stored object that is there but cannot be decrypted or decoded. It is never taken for an object that does
// not exist.
type Unreadable struct {
	Key string
	Rev int64
	Err error
	// Sealed says that the value cannot be decrypted; otherwise it cannot be decoded.
	Sealed bool
}

// NewUnreadable is the error of a pair that was not decoded because of err.
func NewUnreadable(p Pair, err error) *Unreadable {
	return &Unreadable{Key: p.Key, Rev: p.Rev, Err: err, Sealed: p.Err != nil}
}

// Error has the words that kube-apiserver has for a corrupt object.
func (u *Unreadable) Error() string {
	what := "object not decodable"
	if u.Sealed {
		what = "data from the storage is not transformable"
	}
	return fmt.Sprintf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s revision=%d: %v", u.Key, what, u.Rev, u.Err)
}

// Unwrap returns the reason.
func (u *Unreadable) Unwrap() error { return u.Err }
