package storeencryption

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	api "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/store/encryption"
)

// kmsOpener returns the client of the key management service that an entry of the configuration names.
type kmsOpener func(*api.KMSConfiguration) (encryption.Envelope, error)

// readEncryption reads an EncryptionConfiguration: which resources are encrypted in the store, and how.
func readEncryption(path string, defs []*kind.Def, open kmsOpener) ([]encryption.Rule, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the encryption configuration: %w", err)
	}
	rules, err := parseEncryption(text, defs, open)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rules, nil
}

func parseEncryption(text []byte, defs []*kind.Def, open kmsOpener) ([]encryption.Rule, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), text)
	if err != nil {
		return nil, err
	}
	config, ok := decoded.(*api.EncryptionConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected EncryptionConfiguration, got %T", decoded)
	}
	if err := validation.ValidateEncryptionConfiguration(config, true).ToAggregate(); err != nil {
		return nil, err
	}
	var out []encryption.Rule
	for _, r := range config.Resources {
		rule := encryption.Rule{}
		for _, name := range r.Resources {
			rule.Prefixes = append(rule.Prefixes, prefixes(name, defs)...)
		}
		for i := range r.Providers {
			all, err := providers(&r.Providers[i], open)
			if err != nil {
				return nil, err
			}
			rule.Providers = append(rule.Providers, all...)
		}
		out = append(out, rule)
	}
	return out, nil
}

// prefixes returns the key prefixes of resources: of one, of a whole group ("*.apps", "*." for the core), or of all
// ("*.*").
func prefixes(name string, defs []*kind.Def) (out []string) {
	if name == "*.*" {
		return []string{"/registry/"}
	}
	group, whole := strings.CutPrefix(name, "*.")
	for _, d := range defs {
		if d.Hub == nil && (whole && d.Group == group || !whole && d.Resource() == schema.ParseGroupResource(name)) {
			out = append(out, d.Prefix())
		}
	}
	return out // a resource that is not served has no keys
}

// providers returns the encryption providers of one entry of the configuration, one for each key.
func providers(p *api.ProviderConfiguration, open kmsOpener) (out []encryption.Provider, err error) {
	add := func(keys []api.Key, way func(encryption.Key) (encryption.Provider, error)) error {
		for _, k := range keys {
			secret, err := base64.StdEncoding.DecodeString(k.Secret)
			if err != nil {
				return fmt.Errorf("key %s: %w", k.Name, err)
			}
			one, err := way(encryption.Key{Name: k.Name, Secret: secret})
			if err != nil {
				return err
			}
			out = append(out, one)
		}
		return nil
	}
	switch {
	case p.AESGCM != nil:
		err = add(p.AESGCM.Keys, encryption.AESGCM)
	case p.AESCBC != nil:
		err = add(p.AESCBC.Keys, encryption.AESCBC)
	case p.Secretbox != nil:
		err = add(p.Secretbox.Keys, encryption.Secretbox)
	case p.Identity != nil:
		out = []encryption.Provider{encryption.Plain()}
	case p.KMS != nil && p.KMS.APIVersion != "v2":
		err = fmt.Errorf("provider kms %s: version %q of the API of key management services is not supported; use a plugin for v2", p.KMS.Name, p.KMS.APIVersion)
	case p.KMS != nil:
		plugin, oerr := open(p.KMS)
		if oerr != nil {
			return nil, oerr
		}
		one, oerr := encryption.KMS(p.KMS.Name, plugin)
		out, err = []encryption.Provider{one}, oerr
	}
	return out, err
}

// CheckFile returns what is wrong with an EncryptionConfiguration, without a connection to key management services.
func CheckFile(path string) error {
	_, err := readEncryption(path, kinds.All(), checkKMS)
	return err
}
