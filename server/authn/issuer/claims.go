package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel"
)

// user maps claims to a user, as the configuration of the issuer says, and checks the validation rules for both.
func (s *source) user(ctx context.Context, c claims) (*user.DefaultInfo, error) {
	// Every mapping may be an expression over all claims. They are decoded once.
	all, err := c.value()
	if err != nil {
		return nil, err
	}
	out := &user.DefaultInfo{}
	if out.Name, err = s.name(ctx, c, all); err != nil {
		return nil, err
	}
	if out.Groups, err = s.groups(ctx, c, all); err != nil {
		return nil, err
	}
	if out.UID, err = s.uid(ctx, c, all); err != nil {
		return nil, err
	}
	if out.Extra, err = s.extra(ctx, c, all); err != nil {
		return nil, err
	}
	return out, s.checkRules(ctx, c, all, out)
}

func (s *source) name(ctx context.Context, c claims, all traits.Mapper) (name string, err error) {
	if s.rules.Username != nil {
		if name, err = evalString(ctx, s.rules.Username, all, "username"); err == nil && name == "" {
			err = errors.New("oidc: empty username via CEL expression is not allowed")
		}
		return name, err
	}
	m := s.ClaimMappings.Username
	if err := c.read(m.Claim, &name); err != nil {
		return "", fmt.Errorf("oidc: parse username claims %q: %w", m.Claim, err)
	}
	if _, has := c["email_verified"]; has && m.Claim == "email" {
		var verified bool
		if err := c.read("email_verified", &verified); err != nil {
			return "", fmt.Errorf("oidc: parse 'email_verified' claim: %w", err)
		}
		if !verified {
			return "", errors.New("oidc: email not verified")
		}
	}
	if m.Prefix != nil {
		name = *m.Prefix + name
	}
	return name, nil
}

func (s *source) groups(ctx context.Context, c claims, all traits.Mapper) ([]string, error) {
	m := s.ClaimMappings.Groups
	if _, has := c[m.Claim]; has && m.Claim != "" {
		var groups stringList
		if err := c.read(m.Claim, &groups); err != nil {
			return nil, fmt.Errorf("oidc: parse groups claim %q: %w", m.Claim, err)
		}
		if m.Prefix != nil {
			for i := range groups {
				groups[i] = *m.Prefix + groups[i]
			}
		}
		return groups, nil
	}
	if s.rules.Groups == nil {
		return nil, nil
	}
	result, err := s.rules.Groups.EvalClaimMapping(ctx, all)
	if err == nil {
		var groups []string
		if groups, err = stringsOf(result.EvalResult); err == nil {
			return groups, nil
		}
	}
	return nil, fmt.Errorf("oidc: error evaluating group claim expression: %w", err)
}

func (s *source) uid(ctx context.Context, c claims, all traits.Mapper) (uid string, err error) {
	if s.rules.UID != nil {
		return evalString(ctx, s.rules.UID, all, "uid")
	}
	if claim := s.ClaimMappings.UID.Claim; claim != "" {
		if err := c.read(claim, &uid); err != nil {
			return "", fmt.Errorf("oidc: parse uid claim %q: %w", claim, err)
		}
	}
	return uid, nil
}

func (s *source) extra(ctx context.Context, c claims, all traits.Mapper) (map[string][]string, error) {
	out := map[string][]string{}
	var id string
	if c.read("jti", &id) == nil && id != "" {
		out[user.CredentialIDKey] = []string{"JTI=" + id}
	}
	if s.rules.Extra != nil {
		results, err := s.rules.Extra.EvalClaimMappings(ctx, all)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			m, ok := r.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression)
			if !ok {
				continue
			}
			values, err := stringsOf(r.EvalResult)
			if err != nil {
				return nil, fmt.Errorf("oidc: error evaluating extra claim expression: %s: %w", m.Expression, err)
			}
			if len(values) > 0 {
				out[m.Key] = values
			}
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// checkRules checks the required claims, and the validation rules of claims and user.
func (s *source) checkRules(ctx context.Context, c claims, all traits.Mapper, u *user.DefaultInfo) error {
	for _, r := range s.ClaimValidationRules {
		if r.Claim == "" {
			continue
		}
		if _, has := c[r.Claim]; !has {
			return fmt.Errorf("oidc: required claim %s not present in ID token", r.Claim)
		}
		var value string
		if err := c.read(r.Claim, &value); err != nil {
			return fmt.Errorf("oidc: parse claim %s: %w", r.Claim, err)
		}
		if value != r.RequiredValue {
			return fmt.Errorf("oidc: required claim %s value does not match. Got = %s, want = %s", r.Claim, value, r.RequiredValue)
		}
	}
	if s.rules.ClaimValidationRules != nil {
		results, err := s.rules.ClaimValidationRules.EvalClaimMappings(ctx, all)
		if err == nil {
			err = checkResults(results)
		}
		if err != nil {
			return fmt.Errorf("oidc: error evaluating claim validation expression: %w", err)
		}
	}
	if s.rules.UserValidationRules != nil {
		about := map[string]any{"username": u.Name, "uid": u.UID, "groups": u.Groups, "extra": u.Extra}
		results, err := s.rules.UserValidationRules.EvalUser(ctx, celMap(about))
		if err == nil {
			err = checkResults(results)
		}
		if err != nil {
			return fmt.Errorf("oidc: error evaluating user info validation rule: %w", err)
		}
	}
	return nil
}

// checkResults returns an error that names the first validation rule which is not fulfilled.
func checkResults(results []authenticationcel.EvaluationResult) error {
	for _, r := range results {
		if r.EvalResult.Type() != celgo.BoolType {
			return errors.New("validation expression must return a boolean")
		}
		if r.EvalResult.Value().(bool) {
			continue
		}
		message := ""
		switch rule := r.ExpressionAccessor.(type) {
		case *authenticationcel.ClaimValidationCondition:
			message = rule.Message
		case *authenticationcel.UserValidationCondition:
			message = rule.Message
		}
		return fmt.Errorf("validation expression '%s' failed: %s", r.ExpressionAccessor.GetExpression(), message)
	}
	return nil
}

// evalString evaluates an expression whose result is a string.
func evalString(ctx context.Context, rule authenticationcel.ClaimsMapper, all traits.Mapper, what string) (string, error) {
	result, err := rule.EvalClaimMapping(ctx, all)
	if err == nil && result.EvalResult.Type() != celgo.StringType {
		err = fmt.Errorf("%s claim expression must return a string", what)
	}
	if err != nil {
		return "", fmt.Errorf("oidc: error evaluating %s claim expression: %w", what, err)
	}
	return result.EvalResult.Value().(string), nil
}

// stringsOf returns the strings in the result of an expression: one, or a list of them. Empty ones are left out.
func stringsOf(v ref.Val) (out []string, err error) {
	wrong := errors.New("expression must return a string or a list of strings")
	switch v := v.(type) {
	case types.String:
		if v != "" {
			out = []string{string(v)}
		}
		return out, nil
	case types.Null:
		return nil, nil
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, ok := it.Next().(types.String)
			if !ok {
				return nil, wrong
			}
			if item != "" {
				out = append(out, string(item))
			}
		}
		return out, nil
	}
	return nil, wrong
}

// value returns all claims as a CEL value.
func (c claims) value() (traits.Mapper, error) {
	all := make(map[string]any, len(c))
	for name, raw := range c {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("oidc: parse claims: %w", err)
		}
		all[name] = v
	}
	return celMap(all), nil
}

// celMap returns a map as a CEL value, in which a name with characters that identifiers cannot have may be written
// escaped, as in claims.example__dot__com.
func celMap(m map[string]any) traits.Mapper {
	return &escapedMap{types.DefaultTypeAdapter.NativeToValue(m).(traits.Mapper)}
}

type escapedMap struct{ traits.Mapper }

// Find looks a key up, escaped or not.
func (n *escapedMap) Find(key ref.Val) (ref.Val, bool) {
	if s, ok := key.(types.String); ok {
		if plain, ok := cel.Unescape(string(s)); ok && plain != string(s) {
			key = types.String(plain)
		}
	}
	v, found := n.Mapper.Find(key)
	return wrapNested(v), found
}

type escapedList struct{ traits.Lister }

// Get returns an item.
func (l *escapedList) Get(index ref.Val) ref.Val { return wrapNested(l.Lister.Get(index)) }

// wrapNested makes escaped names work in nested maps and lists too.
func wrapNested(v ref.Val) ref.Val {
	switch v := v.(type) {
	case traits.Mapper:
		return &escapedMap{v}
	case traits.Lister:
		return &escapedList{v}
	}
	return v
}
