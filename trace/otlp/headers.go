package otlp

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const (
	// maxHeaders and maxHeaderBytes bound the headers that are added to requests.
	maxHeaders     = 32
	maxHeaderBytes = 16 << 10
	// shortestSecret is the length from which on the value of a header is taken out of what a receiver answers.
	shortestSecret = 4
)

// headers are sent with every request, and hold credentials. They are by name in lower case, and never shown.
type headers map[string]string

// String hides the headers from logs.
func (h headers) String() string { return fmt.Sprintf("%d headers", len(h)) }

// GoString hides the headers from logs.
func (h headers) GoString() string { return h.String() }

// headers returns what is sent with every request: the environment variables that OpenTelemetry defines, and the file, which counts more.
// The file is read each time, so that a credential can be replaced.
func (e Endpoint) headers() (headers, error) {
	out := headers{}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		if err := out.addVariable(os.Getenv(name)); err != nil {
			return nil, fmt.Errorf("the environment variable %s: %w", name, err)
		}
	}
	if e.HeadersFile != "" {
		text, err := readSmall(e.HeadersFile)
		if err != nil {
			return nil, fmt.Errorf("read the headers for the OTLP receiver: %w", err)
		}
		if err := out.addLines(text); err != nil {
			return nil, fmt.Errorf("%s: %w", e.HeadersFile, err)
		}
	}
	if len(out) > maxHeaders {
		return nil, fmt.Errorf("there are %d headers for the OTLP receiver, more than %d", len(out), maxHeaders)
	}
	return out, nil
}

// readSmall reads a file of at most maxHeaderBytes.
func readSmall(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only read
	text, err := io.ReadAll(io.LimitReader(f, maxHeaderBytes+1))
	if err == nil && len(text) > maxHeaderBytes {
		err = fmt.Errorf("%s has more than %d bytes", name, maxHeaderBytes)
	}
	return text, err
}

// addVariable adds the headers of an environment variable: NAME=VALUE,NAME=VALUE with values as in URLs.
func (h headers) addVariable(text string) error {
	if len(text) > maxHeaderBytes {
		return fmt.Errorf("it has more than %d bytes", maxHeaderBytes)
	}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		if !found {
			return errors.New("it must be NAME=VALUE, with a comma between several of them")
		}
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		if err != nil {
			return errors.New("the value of a header is not encoded as in URLs") // the error would quote it
		}
		if err := h.add(name, plain); err != nil {
			return err
		}
	}
	return nil
}

// addLines adds the headers of a file: NAME: VALUE in each line. Empty lines and those that begin with # are left out.
func (h headers) addLines(text []byte) error {
	n := 0
	for raw := range bytes.Lines(text) {
		n++
		line := strings.TrimSpace(string(raw))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		if !found {
			return fmt.Errorf("line %d is not NAME: VALUE", n)
		}
		if err := h.add(name, value); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

// add adds one header. Errors do not quote it: somebody may have given the value first.
func (h headers) add(name, value string) error {
	name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return errors.New("the name of a header has characters that it must not have")
	case !httpguts.ValidHeaderFieldValue(value):
		return errors.New("the value of a header has characters that it must not have")
	case isReserved(name):
		return fmt.Errorf("the header %s cannot be set", name)
	}
	h[name] = value
	return nil
}

// isReserved tells whether a header belongs to the protocol.
func isReserved(name string) bool {
	switch name {
	case "host", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "te", "trailer", "upgrade":
		return true
	}
	return strings.HasPrefix(name, "grpc-")
}

// redact takes the values of headers out of a text of the receiver, also as JSON and URLs write them. The longest come first: the rest of
// one that has another one in it would stay.
func (h headers) redact(text string) string {
	var secrets []string
	for _, value := range h {
		scheme, credential, _ := strings.Cut(value, " ") // Bearer TOKEN
		if !strings.EqualFold(scheme, "bearer") && !strings.EqualFold(scheme, "basic") {
			credential = value
		}
		for _, part := range append(strings.Fields(credential), credential) {
			quoted, _ := json.Marshal(part) // a string can be encoded
			secrets = append(secrets, part, strings.Trim(string(quoted), `"`), url.QueryEscape(part), url.PathEscape(part))
			if pair, err := base64.StdEncoding.DecodeString(part); err == nil && strings.EqualFold(scheme, "basic") {
				_, password, _ := strings.Cut(string(pair), ":")
				secrets = append(secrets, string(pair), password)
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, s := range secrets {
		if len(s) >= shortestSecret {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	return text
}

// readable returns the beginning of a text of the receiver for error messages, without control characters and without the values of
// headers. What is left out first could be between the characters of a value.
func (h headers) readable(text string) string { return shorten(h.redact(printable(text))) }

// redactedError is an error of the connection. It may quote what the receiver has sent, so its text has no values of headers.
type redactedError struct {
	text  string
	cause error
}

// Error implements error.
func (e *redactedError) Error() string { return e.text }

// Unwrap returns the error itself, whose text must not be shown.
func (e *redactedError) Unwrap() error { return e.cause }
