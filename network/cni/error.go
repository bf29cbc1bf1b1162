package cni

import (
	"errors"
	"fmt"
)

// The error codes of the specification. Codes from 100 on are defined by plugins.
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

// Error is an error in the format of the specification.
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

// Errorf returns an error with a code.
func Errorf(code uint, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// asError returns an error as *Error, with a default code if it is not one.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: Internal, Msg: err.Error()}
}
