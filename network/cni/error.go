package cni

import (
	"errors"
	"fmt"
)

// The codes of the specification. Those from 100 on are ours to define.
const (
	IncompatibleVersion = 1
	UnsupportedField    = 2
	UnknownContainer    = 3
	InvalidEnvironment  = 4
	IOFailure           = 5
	DecodeFailure       = 6
	InvalidConfig       = 7
	TryAgainLater       = 11
	NotAvailable        = 50
	Internal            = 999
)

// Error is a failure as runtimes read it.
type Error struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`
}

func (e *Error) Error() string {
	if e.Details != "" {
		return e.Msg + "; " + e.Details
	}
	return e.Msg
}

// Errorf makes an error with a code.
func Errorf(code uint, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// asError gives any error a code.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: Internal, Msg: err.Error()}
}
