package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"proa.dev/test/upstream"
)

// object is one that is sent as JSON.
type object map[string]any

// administrator makes what the attacker and the probe need.
type administrator struct {
	client *http.Client
	host   string
}

// largeObjects times largeObject bytes is what the list of the attacker's namespace is made of.
const (
	largeObjects = 20
	largeObject  = 410 << 10
)

// prepare makes two accounts that may do nothing beyond ConfigMaps of their own namespace, and what they read.
func prepare(ctx context.Context, s *upstream.System, needsList bool) (*Target, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	admin := &administrator{client: client, host: strings.TrimSuffix(config.Host, "/")}
	host, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	t := &Target{Address: host.Host, Authority: x509.NewCertPool()}
	if !t.Authority.AppendCertsFromPEM(config.CAData) {
		return nil, errors.New("the kubeconfig holds no certificate authority")
	}
	if t.Administrator, err = tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
		return nil, err
	}
	if t.AttackerToken, err = admin.account(ctx, attackerNamespace); err != nil {
		return nil, err
	}
	if t.ProbeToken, err = admin.account(ctx, probeNamespace); err != nil {
		return nil, err
	}
	if err := admin.create(ctx, "/api/v1/namespaces/probe/configmaps", configMap("wanted", "1"), nil); err != nil {
		return nil, err
	}
	for i := range largeObjects {
		if needsList {
			if err := admin.create(ctx, attackerObjects, configMap(fmt.Sprintf("large-%d", i), strings.Repeat("x", largeObject)),
				nil); err != nil {
				return nil, err
			}
		}
	}
	return t, admin.settled(ctx)
}

// account makes a namespace that a service account and a user of the same name may use, and returns a token of the service account.
func (a *administrator) account(ctx context.Context, name string) (string, error) {
	core, roles := "/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+name
	meta := object{"name": name}
	steps := []struct {
		path string
		body object
	}{
		{core, object{"metadata": meta}},
		{core + "/" + name + "/serviceaccounts", object{"metadata": meta}},
		{roles + "/roles", object{"metadata": meta, "rules": []object{{
			"apiGroups": []string{""}, "resources": []string{"configmaps"}, "verbs": []string{"get", "list", "create"},
		}}}},
		{roles + "/rolebindings", object{
			"metadata": meta,
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
			"subjects": []object{
				{"kind": "ServiceAccount", "name": name, "namespace": name},
				{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
			},
		}},
	}
	for _, s := range steps {
		if err := a.create(ctx, s.path, s.body, nil); err != nil {
			return "", err
		}
	}
	var token struct{ Status struct{ Token string } }
	err := a.create(ctx, core+"/"+name+"/serviceaccounts/"+name+"/token", object{"spec": object{}}, &token)
	return token.Status.Token, err
}

func configMap(name, value string) object {
	return object{"metadata": object{"name": name}, "data": object{"value": value}}
}

// create sends an object, and reads the answer into out.
func (a *administrator) create(ctx context.Context, path string, body object, out any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.host+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("create %s: %s: %s", path, resp.Status, data)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// settled waits until the server has had a moment for the work that the preparation has left to its controllers.
func (a *administrator) settled(ctx context.Context) error {
	a.client.CloseIdleConnections()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(200 * time.Millisecond):
		return nil
	}
}
