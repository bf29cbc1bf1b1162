package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	// pluginTimeout is the timeout of a plugin.
	pluginTimeout = time.Minute
	// maxPluginOutput limits the size of its output.
	maxPluginOutput = 1 << 20
)

// Accounts creates tokens of service accounts.
type Accounts interface {
	Token(ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest,
		time.Time, error)
}

// Getter reads single objects; client.Client implements it.
type Getter interface {
	Get(ctx context.Context, resource schema.GroupResource, namespace, name, sub string) (kind.Object, error)
}

// PluginConfig configures credential provider plugins.
type PluginConfig struct {
	// File is a CredentialProviderConfig of the kubelet, or a folder of them; Bin is the folder of the programs.
	File, Bin string
	Accounts  Accounts
	Cluster   Getter
	Log       *slog.Logger
}

// Plugins are the credential provider plugins of the node: programs that return logins for registries.
type Plugins struct {
	PluginConfig
	list []*plugin
}

// LoadPlugins reads the configuration and checks that the programs exist.
func LoadPlugins(c PluginConfig) (*Plugins, error) {
	list, err := readProviders(c.File)
	if err != nil {
		return nil, err
	}
	ps := &Plugins{PluginConfig: c}
	for _, p := range list {
		path := filepath.Join(c.Bin, p.Name)
		if _, err := exec.LookPath(path); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errNoProgram, path, err)
		}
		ps.list = append(ps.list, &plugin{provider: p, path: path, cached: map[string]cachedLogins{}, asking: map[string]*sync.Mutex{}})
	}
	return ps, nil
}

// find asks the plugins that match a repository. A plugin that fails is treated as one without logins: the pull may
// work without.
func (ps *Plugins) find(ctx context.Context, p *corev1.Pod, repository string) (out []login) {
	for _, g := range ps.list {
		if !g.knows(repository) {
			continue
		}
		who, err := ps.identify(ctx, g, p)
		if err == nil && who == nil {
			continue
		}
		var logins map[string]entry
		if err == nil {
			logins, err = g.ask(ctx, repository, *who, time.Now)
		}
		if err != nil {
			ps.Log.ErrorContext(ctx, "a credential provider failed", "provider", g.Name, "image", repository, "pod", p.Namespace+"/"+p.Name,
				"err", err)
			continue
		}
		k := &loginIndex{}
		for place, e := range logins {
			k.add(place, login{Username: e.Username, Password: e.Password, from: who.owner})
		}
		out = append(out, k.find(repository)...)
	}
	return out
}

// identity is on whose behalf a plugin is asked.
type identity struct {
	owner       owner // zero for the node
	token       string
	annotations map[string]string
}

// identify returns the service account of a Pod, if the plugin wants it; nil if the plugin does not apply to the Pod.
func (ps *Plugins) identify(ctx context.Context, g *plugin, p *corev1.Pod) (*identity, error) {
	name := p.Spec.ServiceAccountName
	if g.Token == nil || name == "" {
		if g.Token != nil && g.Token.Require != nil && *g.Token.Require {
			return nil, nil
		}
		return &identity{}, nil
	}
	if ps.Cluster == nil || ps.Accounts == nil {
		return nil, errors.New("this agent has no service accounts")
	}
	o, err := ps.Cluster.Get(ctx, gr.ServiceAccounts, p.Namespace, name, "")
	if err != nil {
		return nil, fmt.Errorf("failed to get service account: %w", err)
	}
	id := &identity{owner: owner{Account: true, UID: string(o.GetUID()), Namespace: p.Namespace, Name: name},
		annotations: map[string]string{}}
	for _, key := range g.Token.Required {
		value, ok := o.GetAnnotations()[key]
		if !ok {
			return nil, nil // the account does not take part
		}
		id.annotations[key] = value
	}
	for _, key := range g.Token.Optional {
		if value, ok := o.GetAnnotations()[key]; ok {
			id.annotations[key] = value
		}
	}
	answer, _, err := ps.Accounts.Token(ctx, p.Namespace, name, &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(id.owner.UID)},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{g.Token.Audience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("failed to get service account token: %w", err)
	}
	id.token = answer.Status.Token
	return id, nil
}

// plugin is one program, with a cache of its answers.
type plugin struct {
	provider
	path string

	mu     sync.Mutex // guards kept and asking
	cached map[string]cachedLogins
	asking map[string]*sync.Mutex // serializes calls for the same image and identity
}

type cachedLogins struct {
	logins map[string]entry
	until  time.Time
}

func (g *plugin) knows(image string) bool {
	for _, m := range g.MatchImages {
		if matches(m, image) {
			return true
		}
	}
	return false
}

// identityKey returns the part of a cache key that stands for the identity.
func (g *plugin) identityKey(id identity) string {
	if id.owner == (owner{}) {
		return ""
	}
	key := map[string]any{"account": id.owner, "notes": id.annotations}
	if g.Token.CacheType == forToken {
		key["token"] = fmt.Sprintf("%x", sha256.Sum256([]byte(id.token)))
	}
	text, err := json.Marshal(key)
	if err != nil {
		return id.token
	}
	return string(text)
}

// registryOf returns the registry of an image.
func registryOf(image string) string { host, _, _ := strings.Cut(image, "/"); return host }

// globalKey is the cache key of an answer that is valid for all images.
const globalKey = "<global>"

// ask returns the plugin's answer, from the cache if possible.
func (g *plugin) ask(ctx context.Context, image string, id identity, now func() time.Time) (map[string]entry, error) {
	about := "\n" + g.identityKey(id)
	g.mu.Lock()
	call := g.asking[image+about]
	if call == nil {
		call = &sync.Mutex{}
		g.asking[image+about] = call
	}
	g.mu.Unlock()
	call.Lock()
	defer func() {
		g.mu.Lock()
		delete(g.asking, image+about)
		g.mu.Unlock()
		call.Unlock()
	}()
	if logins, ok := g.cachedFor(image, about, now()); ok {
		return logins, nil
	}
	a, err := g.run(ctx, image, id)
	if err != nil {
		return nil, err
	}
	what, ok := map[string]string{"Image": image, "Registry": registryOf(image), "Global": globalKey}[a.CacheKeyType]
	if !ok {
		return nil, fmt.Errorf("credential provider plugin did not return a valid cacheKeyType: %s", a.CacheKeyType)
	}
	if id.token != "" && g.Token.CacheType != forToken {
		for _, e := range a.Auth {
			if e.Password == id.token {
				return nil, errors.New("credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'")
			}
		}
	}
	keep := g.DefaultDuration
	if a.CacheDuration != nil {
		keep = a.CacheDuration
	}
	if keep != nil && keep.Duration > 0 {
		g.mu.Lock()
		g.cached[what+about] = cachedLogins{logins: a.Auth, until: now().Add(keep.Duration)}
		g.mu.Unlock()
	}
	return a.Auth, nil
}

func (g *plugin) cachedFor(image, about string, now time.Time) (map[string]entry, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, k := range g.cached {
		if now.After(k.until) {
			delete(g.cached, key)
		}
	}
	for _, what := range []string{image, registryOf(image), globalKey} {
		if k, ok := g.cached[what+about]; ok {
			return k.logins, true
		}
	}
	return nil, false
}

// pluginRequest is the CredentialProviderRequest that a plugin reads.
type pluginRequest struct {
	metav1.TypeMeta
	Image string            `json:"image"`
	Token string            `json:"serviceAccountToken,omitempty"`
	Notes map[string]string `json:"serviceAccountAnnotations,omitempty"`
}

// pluginResponse is the CredentialProviderResponse that a plugin writes.
type pluginResponse struct {
	metav1.TypeMeta
	CacheKeyType  string           `json:"cacheKeyType"`
	CacheDuration *metav1.Duration `json:"cacheDuration,omitempty"`
	Auth          map[string]entry `json:"auth,omitempty"`
}

// run runs the plugin.
func (g *plugin) run(ctx context.Context, image string, id identity) (pluginResponse, error) {
	text, err := json.Marshal(pluginRequest{
		TypeMeta: metav1.TypeMeta{Kind: "CredentialProviderRequest", APIVersion: g.APIVersion}, Image: image, Token: id.token,
		Notes: id.annotations,
	})
	if err != nil {
		return pluginResponse{}, err
	}
	ctx, stop := context.WithTimeout(ctx, pluginTimeout)
	defer stop()
	cmd := exec.CommandContext(ctx, g.path, g.Args...) //nolint:gosec // G204: whoever configures the node names the program
	cmd.WaitDelay = time.Second
	cmd.Env = os.Environ()
	for _, e := range g.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	out, stderr := &limitedBuffer{most: maxPluginOutput}, &limitedBuffer{most: 4096}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), out, stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return pluginResponse{}, fmt.Errorf("error execing credential provider plugin %s for image %s: %w: %s", g.Name, image, err,
			stderr.Bytes())
	}
	var a pluginResponse
	// The parser's error may quote the contents, so it is left out.
	if err := json.Unmarshal(out.Bytes(), &a); err != nil || a.Kind != "CredentialProviderResponse" {
		return pluginResponse{}, errors.New("error decoding credential provider plugin response from stdout")
	}
	if a.APIVersion != g.APIVersion {
		return pluginResponse{}, fmt.Errorf("apiVersion from credential plugin response did not match expected apiVersion:%s, actual apiVersion:%s", g.APIVersion, a.APIVersion)
	}
	return a, nil
}

// limitedBuffer is a buffer that keeps the beginning of what is written to it.
type limitedBuffer struct {
	bytes.Buffer
	most int
}

func (b *limitedBuffer) Write(text []byte) (int, error) {
	if room := b.most - b.Len(); room > 0 {
		b.Buffer.Write(text[:min(room, len(text))])
	}
	return len(text), nil
}
