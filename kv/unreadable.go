package kv

import (
	"errors"
	"fmt"
	"log/slog"
)

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
func (u *Unreadable) Error() string { return u.text(fmt.Sprint(u.Err)) }

// LogValue is the error as logs may have it, where the reason says what they may have: who decodes may be somebody who is not believed.
func (u *Unreadable) LogValue() slog.Value {
	if reason, ok := errors.AsType[interface {
		error
		slog.LogValuer
	}](u.Err); ok {
		return slog.StringValue(u.text(reason.LogValue().String()))
	}
	return slog.StringValue(u.Error())
}

func (u *Unreadable) text(reason string) string {
	what := "object not decodable"
	if u.Sealed {
		what = "data from the storage is not transformable"
	}
	return fmt.Sprintf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s revision=%d: %s", u.Key, what, u.Rev, reason)
}

// Unwrap returns the reason.
func (u *Unreadable) Unwrap() error { return u.Err }
