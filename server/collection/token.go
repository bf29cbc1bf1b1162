package collection

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// token is a continue token: the key below the prefix at which the next page begins, and the revision of all pages.
type token struct {
	Version string `json:"v"`
	Rev     int64  `json:"rv"`
	Start   string `json:"start"`
}

func (t token) encode() string {
	t.Version = "meta.k8s.io/v1"
	b, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

var errToken = errors.New("continue key is not valid")

func decodeToken(s string) (token, error) {
	var t token
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return t, fmt.Errorf("%w: %w", errToken, err)
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("%w: %w", errToken, err)
	}
	if t.Version != "meta.k8s.io/v1" {
		return t, errors.New("continue key is not valid: server does not recognize this encoded version \"" + t.Version + "\"")
	}
	if t.Rev == 0 {
		return t, fmt.Errorf("%w: incorrect encoded start resourceVersion (version meta.k8s.io/v1)", errToken)
	}
	if t.Start == "" {
		return t, fmt.Errorf("%w: encoded start key empty (version meta.k8s.io/v1)", errToken)
	}
	// The start is joined to the prefix of the collection and must stay below it.
	if clean := path.Clean("/" + t.Start); strings.TrimSuffix("/"+t.Start, "/") != strings.TrimSuffix(clean, "/") {
		return t, errors.New("continue key is not valid: " + t.Start)
	}
	return t, nil
}

// expiredError returns the error for a list whose revision has been compacted. For a continue token it carries another
// token, with which the rest can be read at the newest revision.
func expiredError(isContinue bool, start string) error {
	if !isContinue {
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	err := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = token{Rev: -1, Start: start}.encode()
	return err
}
