package kv

import (
	"errors"
	"fmt"
	"log/slog"
)

// Unreadable is the error of a stored object that exists but cannot be decrypted or decoded. It must not be treated
// like an object that does not exist.
type Unreadable struct {
	Key string
	Rev int64
	Err error
	// Undecryptable reports that the value cannot be decrypted; otherwise it cannot be decoded.
	Undecryptable bool
}

// NewUnreadable returns the error of a pair that could not be decoded because of err.
func NewUnreadable(p Pair, err error) *Unreadable {
	return &Unreadable{Key: p.Key, Rev: p.Rev, Err: err, Undecryptable: p.Err != nil}
}

// Error returns the text that kube-apiserver has for a corrupt object.
func (u *Unreadable) Error() string { return u.text(fmt.Sprint(u.Err)) }

// LogValue returns the error for logs. If the reason has a log value of its own, that is used: it may come from a
// conversion webhook whose text is not trusted.
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
	if u.Undecryptable {
		what = "data from the storage is not transformable"
	}
	return fmt.Sprintf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s revision=%d: %s", u.Key, what, u.Rev, reason)
}

// Unwrap returns why the object could not be decoded.
func (u *Unreadable) Unwrap() error { return u.Err }
