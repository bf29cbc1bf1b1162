// Package authzconfig reads which authorizers are asked and in which order: from an AuthorizationConfiguration, or from
// the names of authorization modes.
package authzconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	api "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"proa.dev/server/celenv"
)

// Webhook is the type of an authorizer that is a webhook.
const Webhook = "Webhook"

// Step is one authorizer of the chain.
type Step struct {
	Type, Name string

	// The following fields are for a webhook.

	// Kubeconfig is the path of the file that says how to reach the webhook.
	Kubeconfig            string
	Version               string
	Timeout               time.Duration
	AllowedTTL, DeniedTTL time.Duration
	// Deny says that a failure of the webhook is a denial.
	Deny bool
	// Match reports whether the webhook is asked about a request; nil for all requests.
	Match func(context.Context, *authorizationv1.SubjectAccessReview) (bool, error)
}

// modes maps the types of authorizers to the names under which they appear in 403 responses.
func modes() map[string]string {
	return map[string]string{"AlwaysAllow": "alwaysallow", "AlwaysDeny": "alwaysdeny", "Node": "node", "RBAC": "rbac", Webhook: "webhook"}
}

// Parse reads an AuthorizationConfiguration.
func Parse(text []byte) ([]Step, error) {
	if len(text) == 0 {
		return nil, errors.New("empty config data")
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	decoded, err := runtime.Decode(codecs.UniversalDecoder(), text)
	if err != nil {
		return nil, err
	}
	config, ok := decoded.(*api.AuthorizationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthorizationConfiguration, got %T", decoded)
	}
	compiler := authorizationcel.NewCompiler(celenv.Base())
	known := sets.KeySet(modes())
	if err := validation.ValidateAuthorizationConfiguration(compiler, nil, config, known, sets.New(Webhook)).ToAggregate(); err != nil {
		return nil, err
	}
	var out []Step
	for _, a := range config.Authorizers {
		s := Step{Type: string(a.Type), Name: a.Name}
		if a.Webhook != nil {
			if err := s.setWebhook(compiler, a.Webhook); err != nil {
				return nil, fmt.Errorf("authorizer %s: %w", a.Name, err)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// setWebhook copies the settings of a webhook.
func (s *Step) setWebhook(compiler authorizationcel.Compiler, w *api.WebhookConfiguration) error {
	if w.ConnectionInfo.Type != api.AuthorizationWebhookConnectionInfoTypeKubeConfigFile {
		return fmt.Errorf("connectionInfo.type %s is for servers that are not the API server; give a kubeConfigFile", w.ConnectionInfo.Type)
	}
	s.Kubeconfig, s.Version, s.Timeout = *w.ConnectionInfo.KubeConfigFile, w.SubjectAccessReviewVersion, w.Timeout.Duration
	s.Deny = w.FailurePolicy == api.FailurePolicyDeny
	if w.CacheAuthorizedRequests {
		s.AllowedTTL = w.AuthorizedTTL.Duration
	}
	if w.CacheUnauthorizedRequests {
		s.DeniedTTL = w.UnauthorizedTTL.Duration
	}
	matcher, errs := validation.ValidateAndCompileMatchConditions(compiler, w.MatchConditions)
	if err := errs.ToAggregate(); err != nil {
		return err
	}
	if matcher != nil {
		s.Match = matcher.Eval
	}
	return nil
}

// FromModes returns the authorizers for the names of modes. hook has the settings of the webhook, if there is one.
func FromModes(names []string, hook Step) ([]Step, error) {
	var out []Step
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			return nil, fmt.Errorf("authorization-mode %q has mode specified more than once", names)
		}
		if n == "ABAC" {
			return nil, errors.New("authorization-mode ABAC is not supported; write its policies as RBAC roles")
		}
		name, known := modes()[n]
		if !known {
			return nil, fmt.Errorf("authorization-mode %q is not a valid mode; the modes are AlwaysAllow, AlwaysDeny, Node, RBAC and Webhook", n)
		}
		s := Step{Type: n, Name: name}
		if n == Webhook {
			if hook.Kubeconfig == "" {
				return nil, errors.New("authorization-mode Webhook's authorization config file not passed")
			}
			s = hook
			s.Type, s.Name, s.Timeout = n, "default", 30*time.Second
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, errors.New("at least one authorization-mode must be passed")
	}
	if hook.Kubeconfig != "" && !slices.Contains(names, Webhook) {
		return nil, fmt.Errorf("cannot specify --authorization-webhook-config-file without mode Webhook, but the modes are %s", strings.Join(names, ","))
	}
	return out, nil
}
