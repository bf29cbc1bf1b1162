package image

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// providers is a CredentialProviderConfig of the kubelet, the configuration file of credential provider plugins.
type providers struct {
	metav1.TypeMeta
	Providers []provider `json:"providers"`
}

type provider struct {
	Name            string           `json:"name"`
	MatchImages     []string         `json:"matchImages"`
	DefaultDuration *metav1.Duration `json:"defaultCacheDuration"`
	APIVersion      string           `json:"apiVersion"`
	Args            []string         `json:"args,omitempty"`
	Env             []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env,omitempty"`
	Token *tokenAttributes `json:"tokenAttributes,omitempty"`
}

// tokenAttributes configures that a plugin gets a token of the Pod's service account.
type tokenAttributes struct {
	Audience  string   `json:"serviceAccountTokenAudience"`
	CacheType string   `json:"cacheType"`
	Require   *bool    `json:"requireServiceAccount"`
	Required  []string `json:"requiredServiceAccountAnnotationKeys,omitempty"`
	Optional  []string `json:"optionalServiceAccountAnnotationKeys,omitempty"`
}

// The scopes in which answers may be cached: the service account, or a single token.
const (
	forAccount = "ServiceAccount"
	forToken   = "Token"
)

// versions returns the API versions of plugins.
func versions() []string {
	const group = "credentialprovider.kubelet.k8s.io/"
	return []string{group + "v1", group + "v1alpha1", group + "v1beta1"}
}

// readProviders reads a file, or all files of a folder in the order of their names.
func readProviders(path string) ([]provider, error) {
	files := []string{path}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("unable to access path %q: %w", path, err)
	}
	if info.IsDir() {
		files = nil
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("unable to read directory %q: %w", path, err)
		}
		for _, e := range entries {
			if slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) && !e.IsDir() {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no configuration files found in directory %q", path)
		}
	}
	var out []provider
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("unable to read file %q: %w", file, err)
		}
		list, err := parseProviders(text)
		if err != nil {
			return nil, fmt.Errorf("error decoding config %q: %w", file, err)
		}
		out = append(out, list...)
	}
	if errs := checkProviders(out); len(errs) > 0 {
		return nil, fmt.Errorf("failed to validate credential provider config: %w", errs.ToAggregate())
	}
	return out, nil
}

func parseProviders(text []byte) ([]provider, error) {
	var f providers
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, err
	}
	group, version, _ := strings.Cut(f.APIVersion, "/")
	if f.Kind != "CredentialProviderConfig" || group != "kubelet.config.k8s.io" ||
		!slices.Contains([]string{"v1", "v1beta1", "v1alpha1"}, version) {
		return nil, fmt.Errorf("want a CredentialProviderConfig of kubelet.config.k8s.io/v1, not a %s of %s", f.Kind, f.APIVersion)
	}
	return f.Providers, nil
}

func checkProviders(list []provider) (errs field.ErrorList) {
	path := field.NewPath("providers")
	if len(list) == 0 {
		errs = append(errs, field.Required(path, "at least 1 item in plugins is required"))
	}
	seen := map[string]bool{}
	for i := range list {
		p := &list[i]
		if seen[p.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
		}
		seen[p.Name] = true
		errs = append(errs, p.check(path)...)
		if p.Token != nil {
			errs = append(errs, p.Token.check(path.Child("tokenAttributes"))...)
		}
	}
	return errs
}

func (p *provider) check(path *field.Path) (errs field.ErrorList) {
	for _, bad := range []struct {
		yes bool
		why string
	}{
		{strings.Contains(p.Name, "/"), "provider name cannot contain '/'"},
		{strings.Contains(p.Name, " "), "provider name cannot contain spaces"},
		{p.Name == ".", "provider name cannot be '.'"}, {p.Name == "..", "provider name cannot be '..'"},
		{p.Name == "", "provider name cannot be empty"},
	} {
		if bad.yes {
			errs = append(errs, field.Invalid(path.Child("name"), p.Name, bad.why))
		}
	}
	if p.APIVersion == "" {
		errs = append(errs, field.Required(path.Child("apiVersion"), ""))
	} else if !slices.Contains(versions(), p.APIVersion) {
		errs = append(errs, field.NotSupported(path.Child("apiVersion"), p.APIVersion, versions()))
	}
	if len(p.MatchImages) == 0 {
		errs = append(errs, field.Required(path.Child("matchImages"), "at least 1 item in matchImages is required"))
	}
	for _, m := range p.MatchImages {
		if _, err := url.Parse("https://" + m); err != nil {
			errs = append(errs, field.Invalid(path.Child("matchImages"), m, fmt.Sprintf("match image is invalid: %s", err)))
		}
	}
	switch d := p.DefaultDuration; {
	case d == nil:
		errs = append(errs, field.Required(path.Child("defaultCacheDuration"), ""))
	case d.Duration < 0:
		errs = append(errs, field.Invalid(path.Child("defaultCacheDuration"), d.Duration.String(), "must be greater than or equal to 0"))
	}
	return errs
}

func (a *tokenAttributes) check(path *field.Path) (errs field.ErrorList) {
	if a.Audience == "" {
		errs = append(errs, field.Required(path.Child("serviceAccountTokenAudience"), ""))
	}
	if a.Require == nil {
		errs = append(errs, field.Required(path.Child("requireServiceAccount"), ""))
	}
	if a.CacheType != forAccount && a.CacheType != forToken {
		errs = append(errs, field.NotSupported(path.Child("cacheType"), a.CacheType, []string{forAccount, forToken}))
	}
	seen := map[string]bool{}
	for _, key := range append(slices.Clone(a.Required), a.Optional...) {
		for _, msg := range validation.IsQualifiedName(strings.ToLower(key)) {
			errs = append(errs, field.Invalid(path, key, msg))
		}
		if seen[key] {
			errs = append(errs, field.Duplicate(path, key))
		}
		seen[key] = true
	}
	return errs
}

// errNoProgram means that the program of a configured plugin does not exist.
var errNoProgram = errors.New("the program of a credential provider is not there")
