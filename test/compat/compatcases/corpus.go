package compatcases

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"proa.dev/test/compat/answerdiff"
)

// corpus is the data the requests are made from, by "apiVersion/Kind".
type corpus struct {
	minimal map[string]string         // JSON with $WORDS to replace
	full    map[string]map[string]any // every field filled
	cases   map[string][]handCase
	words   map[string]string
	dir     string
	custom  []*resource               // the kinds of custom.yaml
	defined map[string]map[string]any // their definitions
}

// handCase is one hand-written request about a kind: a change to its minimal
// object, sent as a create or an update, or a request to a subresource.
type handCase struct {
	Name   string `json:"name"`
	Create any    `json:"create"` // merged into the minimal object, then created (dry run)
	Update any    `json:"update"` // merged into the stored object, then updated (dry run)
	Status any    `json:"status"` // merged into the stored object, sent to /status
	Post   any    `json:"post"`   // sent as it is to a subresource
	Put    any    `json:"put"`    // merged into what GET of the subresource gives
	Patch  any    `json:"patch"`  // merge patch to the subresource, or to the object
	Sub    string `json:"sub"`    // the subresource of post, put, patch
	Store  bool   `json:"store"`  // not a dry run
	With   string `json:"with"`   // name of the minimal object to work on: first, or fresh
}

// caseFile is one file of hand-written cases.
type caseFile struct {
	Kind  string     `json:"kind"` // apiVersion/Kind
	Cases []handCase `json:"cases"`
}

// LoadCorpus reads the corpus of a folder. Words in it are replaced by their values.
func LoadCorpus(ctx context.Context, dir string, words map[string]string) (*corpus, error) {
	c := &corpus{dir: dir, minimal: map[string]string{}, full: map[string]map[string]any{}, cases: map[string][]handCase{},
		defined: map[string]map[string]any{}}
	var err error
	if c.words, err = makeWords(); err != nil {
		return nil, err
	}
	maps.Copy(c.words, words)
	if err := c.loadMinimal(filepath.Join(dir, "minimal.yaml")); err != nil {
		return nil, err
	}
	if err := c.loadCases(filepath.Join(dir, "cases")); err != nil {
		return nil, err
	}
	if err := c.loadFull(ctx); err != nil {
		return nil, err
	}
	return c, c.loadCustom(filepath.Join(dir, "custom.yaml"))
}

// customKind is a document of custom.yaml.
type customKind struct {
	Definition map[string]any `json:"definition"`
	Minimal    map[string]any `json:"minimal"` // without apiVersion and kind
	Full       map[string]any `json:"full"`    // each field is tried by itself, and with bad values
}

// loadCustom reads the custom kinds. Each served version is a kind of its own.
func (c *corpus) loadCustom(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for i, doc := range bytes.Split(data, []byte("\n---\n")) {
		plain, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return fmt.Errorf("%s, document %d: %w", file, i, err)
		}
		var one customKind
		d := json.NewDecoder(strings.NewReader(c.replace(string(plain), "", 0)))
		d.DisallowUnknownFields()
		d.UseNumber()
		if err := d.Decode(&one); err != nil {
			return fmt.Errorf("%s, document %d: %w", file, i, err)
		}
		for _, r := range definedResources(one.Definition) {
			c.custom = append(c.custom, r)
			c.defined[r.key()] = one.Definition
			typed := func(o map[string]any) map[string]any {
				o = answerdiff.Clone(o)
				o["apiVersion"], o["kind"] = r.apiVersion(), r.kind
				return o
			}
			c.minimal[r.key()] = string(answerdiff.Encode(typed(one.Minimal)))
			if one.Full != nil {
				c.full[r.key()] = typed(one.Full)
			}
		}
	}
	return nil
}

func (c *corpus) loadMinimal(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for i, doc := range bytes.Split(data, []byte("\n---\n")) {
		plain, err := yaml.YAMLToJSON(doc)
		if err != nil {
			return fmt.Errorf("%s, document %d: %w", file, i, err)
		}
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(plain, &head); err != nil {
			return err
		}
		c.minimal[head.APIVersion+"/"+head.Kind] = string(plain)
	}
	return nil
}

func (c *corpus) loadCases(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for i, doc := range bytes.Split(data, []byte("\n---\n")) {
			var f caseFile
			if err := yaml.UnmarshalStrict(doc, &f); err != nil {
				return fmt.Errorf("%s, document %d: %w", file, i, err)
			}
			c.cases[f.Kind] = append(c.cases[f.Kind], f.Cases...)
		}
	}
	return nil
}

// loadFull reads the fully filled examples that the published API module
// carries for its own round-trip tests.
func (c *corpus) loadFull(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		return fmt.Errorf("find k8s.io/api: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "HEAD", "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		v, err := answerdiff.ParseJSON(data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if object, ok := v.(map[string]any); ok {
			c.full[fmt.Sprintf("%v/%v", object["apiVersion"], object["kind"])] = object
		}
	}
	return nil
}

// minimalObject makes the n-th minimal object of a kind.
func (c *corpus) minimalObject(kind, namespace string, n int) (map[string]any, bool) {
	text, ok := c.minimal[kind]
	if !ok {
		return nil, false
	}
	v, err := answerdiff.ParseJSON([]byte(c.replace(text, namespace, n)))
	if err != nil {
		return nil, false
	}
	object := v.(map[string]any)
	if strings.HasSuffix(kind, "Review") {
		return object, true // never stored, so it needs no name
	}
	meta, _ := object["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		object["metadata"] = meta
	}
	if meta["name"] == nil {
		meta["name"] = "obj-" + strconv.Itoa(n)
	}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	labels, _ := meta["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
		meta["labels"] = labels
	}
	labels["compat"] = "yes"
	return object, true
}

func (c *corpus) replace(text, namespace string, n int) string {
	number := strconv.Itoa(n)
	words := []string{"$NAMESPACE", cmp.Or(namespace, "default"), "$NAME", "obj" + number, "$KIND", "Obj" + number, "$N", number}
	for k, v := range c.words {
		words = append(words, k, v)
	}
	// Longer words come first, since one is the beginning of another.
	return strings.NewReplacer(words...).Replace(text)
}

// makeWords makes the certificate and the signing request that some kinds
// need: the same for both servers.
func makeWords() (map[string]string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "someone"}}, key)
	if err != nil {
		return nil, err
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "compat"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	// The words stand inside JSON strings, so line ends are escaped.
	return map[string]string{
		"$CSR":         base64.StdEncoding.EncodeToString(block("CERTIFICATE REQUEST", request)),
		"$STUB":        base64.StdEncoding.EncodeToString(stub),
		"$CERTIFICATE": strings.ReplaceAll(string(block("CERTIFICATE", cert)), "\n", `\n`),
	}, nil
}

// Merge applies a JSON merge patch to a tree.
func Merge(into, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	base, ok := into.(map[string]any)
	if !ok {
		base = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(base, k)
			continue
		}
		base[k] = Merge(base[k], v)
	}
	return base
}
