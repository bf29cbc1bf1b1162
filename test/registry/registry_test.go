package registry

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"proa.dev/test/images/oci"
)

// writeArchive writes an archive with images of one layer; the layer holds the text.
func writeArchive(t *testing.T, text string, names ...string) string {
	t.Helper()
	tree := oci.Tree{}
	tree.Text("text", text)
	layer, err := tree.Layer()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "images.tar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(oci.Write(file, oci.Image{Names: names, Layers: []oci.Layer{layer}}), file.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	plain = "registry.k8s.io/e2e/plain:1"
	other = "proa.test/other:2"
)

func start(t *testing.T, o Options) *Registry {
	t.Helper()
	if o.Archives == nil {
		o.Archives = []string{writeArchive(t, "hello", plain, other)}
	}
	r, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// puller pulls images as a runtime does: manifest, config, layers, each checked.
type puller struct {
	r        *Registry
	http     http.Client
	user     string
	password string
}

func newPuller(t *testing.T, r *Registry) *puller {
	transport := &http.Transport{}
	if r.CA() != nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(r.CA()) {
			t.Fatal("the authority is not PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &puller{r: r, http: http.Client{Transport: transport}}
}

func (p *puller) get(ctx context.Context, address string, authorize func(*http.Request)) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, err
	}
	authorize(req)
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

// fetch gets what is below /v2/, with a token if one is asked for.
func (p *puller) fetch(ctx context.Context, path string) ([]byte, error) {
	basic := func(req *http.Request) {
		if p.user != "" {
			req.SetBasicAuth(p.user, p.password)
		}
	}
	resp, data, err := p.get(ctx, p.r.URL()+"/v2/"+path, basic)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		m := regexp.MustCompile(`^Bearer realm="(.*)",service="(.*)",scope="(.*)"$`).FindStringSubmatch(resp.Header.Get("WWW-Authenticate"))
		if m != nil {
			var grant struct{ Token string }
			resp, data, err = p.get(ctx, m[1]+"?service="+url.QueryEscape(m[2])+"&scope="+url.QueryEscape(m[3]), basic)
			if err == nil && resp.StatusCode == http.StatusOK {
				if err := json.Unmarshal(data, &grant); err != nil {
					return nil, err
				}
				resp, data, err = p.get(ctx, p.r.URL()+"/v2/"+path,
					func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+grant.Token) })
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	if want := resp.Header.Get("Docker-Content-Digest"); want != fmt.Sprintf("sha256:%x", sha256.Sum256(data)) {
		return nil, errors.New("wrong digest")
	}
	return data, nil
}

func (p *puller) pull(ctx context.Context, repository, reference string) error {
	data, err := p.fetch(ctx, repository+"/manifests/"+reference)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	var m struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	for _, digest := range []string{m.Config.Digest, m.Layers[0].Digest} {
		if _, err := p.fetch(ctx, repository+"/blobs/"+digest); err != nil {
			return fmt.Errorf("blob: %w", err)
		}
	}
	return nil
}

func TestPull(t *testing.T) {
	for _, scheme := range []Scheme{HTTP, HTTPS} {
		for _, auth := range []Auth{Anonymous, Basic, Token} {
			t.Run(fmt.Sprint(scheme, auth), func(t *testing.T) {
				r := start(t, Options{Scheme: scheme, Auth: auth})
				p := newPuller(t, r)
				if auth != Anonymous {
					if err := p.pull(t.Context(), "e2e/plain", "1"); err == nil || err.Error() != "manifest: status 401" {
						t.Fatalf("without credentials: %v", err)
					}
					p.user, p.password = "test", "wrong"
					if err := p.pull(t.Context(), "e2e/plain", "1"); err == nil || err.Error() != "manifest: status 401" {
						t.Fatalf("with a wrong password: %v", err)
					}
					p.user, p.password = r.Credentials()
				}
				refused := r.Pulled(plain).Refused
				if (refused > 0) != (auth != Anonymous) {
					t.Errorf("%d requests were refused", refused)
				}
				for _, where := range [][2]string{{"e2e/plain", "1"}, {"other", "2"}} {
					if err := p.pull(t.Context(), where[0], where[1]); err != nil {
						t.Errorf("%s: %v", where, err)
					}
				}
				if c := r.Pulled(plain); c.Resolved != 1 || c.Manifests != 1 || c.Blobs != 2 || c.Bytes == 0 {
					t.Errorf("counts %+v; want one manifest and two blobs", c)
				}
				if err := p.pull(t.Context(), "other", "3"); err == nil || err.Error() != "manifest: status 404" {
					t.Errorf("a tag that is not there: %v", err)
				}
			})
		}
	}
}

// TestTokenIsForOneRepository checks that the token of one repository is rejected for another.
func TestTokenIsForOneRepository(t *testing.T) {
	r := start(t, Options{Auth: Token})
	p := newPuller(t, r)
	form := url.Values{"username": {"test"}, "password": {"secret"}, "scope": {"repository:other:pull"}, "grant_type": {"password"}}
	resp, err := p.http.PostForm(r.URL()+"/token", form)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var grant struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&grant); err != nil || grant.Token == "" {
		t.Fatalf("token %q, %v", grant.Token, err)
	}
	for path, want := range map[string]int{"other/manifests/2": 200, "e2e/plain/manifests/1": 401} {
		resp, _, err := p.get(t.Context(), r.URL()+"/v2/"+path,
			func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+grant.Token) })
		if err != nil || resp.StatusCode != want {
			t.Errorf("%s: %v, %v; want %d", path, resp.StatusCode, err, want)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		fault Fault
		want  []string // the results of several pulls, one after the other
	}{
		{Fault{Mode: ServerError}, []string{"manifest: status 500", "manifest: status 500"}},
		{Fault{Mode: ServerError, Times: 1}, []string{"manifest: status 500", ""}},
		{Fault{Mode: ServerError, Kind: Blobs, Times: 2}, []string{"blob: status 500", "blob: status 500", ""}},
		{Fault{Mode: TooManyRequests, Times: 1}, []string{"manifest: status 429", ""}},
		{Fault{Mode: Truncated, Kind: Blobs, Times: 1}, []string{"blob: unexpected EOF", ""}},
		{Fault{Mode: WrongBytes, Kind: Manifests, Times: 1}, []string{"manifest: wrong digest", ""}},
		{Fault{Mode: WrongBytes, Kind: Blobs, Times: 1}, []string{"blob: wrong digest", ""}},
		{Fault{Mode: ServerError, Repository: "other"}, []string{""}},
	} {
		t.Run(fmt.Sprintf("%+v", test.fault), func(t *testing.T) {
			r := start(t, Options{})
			p := newPuller(t, r)
			r.Break(test.fault)
			for i, want := range test.want {
				got := ""
				if err := p.pull(t.Context(), "e2e/plain", "1"); err != nil {
					got = err.Error()
				}
				if got != want {
					t.Errorf("pull %d: %q; want %q", i+1, got, want)
				}
			}
			r.Heal()
			if err := p.pull(t.Context(), "e2e/plain", "1"); err != nil {
				t.Errorf("after Heal: %v", err)
			}
		})
	}
}

// TestHang checks that a pull of a repository that does not answer ends with its context.
func TestHang(t *testing.T) {
	r := start(t, Options{})
	r.Break(Fault{Mode: Hang})
	ctx, cancel := context.WithCancel(t.Context())
	p := newPuller(t, r)
	var pulled sync.WaitGroup
	var err error
	pulled.Go(func() { err = p.pull(ctx, "e2e/plain", "1") })
	for r.Pulled(plain).Manifests == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	pulled.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("pull: %v; want that it was cancelled", err)
	}
}

// TestSlow checks that a pull takes as long as the configured rate requires, and that concurrent pulls of two repositories are
// counted.
func TestSlow(t *testing.T) {
	r := start(t, Options{Rate: 4000})
	p := newPuller(t, r)
	begin := time.Now()
	var pulled sync.WaitGroup
	for _, where := range [][2]string{{"e2e/plain", "1"}, {"other", "2"}} {
		pulled.Go(func() {
			if err := p.pull(t.Context(), where[0], where[1]); err != nil {
				t.Error(err)
			}
		})
	}
	pulled.Wait()
	least := time.Duration(r.Pulled(plain).Bytes) * time.Second / 4000 / 2
	if took := time.Since(begin); took < least {
		t.Errorf("%d bytes took %s; want at least %s", r.Pulled(plain).Bytes, took, least)
	}
	if r.Peak() != 2 {
		t.Errorf("peak %d; want 2", r.Peak())
	}
	r.SetRate(0)
	if err := p.pull(t.Context(), "other", "2"); err != nil {
		t.Error(err)
	}
}

func TestTagsMove(t *testing.T) {
	r := start(t, Options{})
	digest := func() string {
		resp, err := http.Head(r.URL() + "/v2/e2e/plain/manifests/1")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.Header.Get("Docker-Content-Digest")
	}
	first := digest()
	if err := r.Add(writeArchive(t, "new", "proa.test/new:1")); err != nil {
		t.Fatal(err)
	}
	if err := r.Tag("proa.test/new:1", plain); err != nil {
		t.Fatal(err)
	}
	if second := digest(); first == "" || second == first {
		t.Errorf("the tag went from %q to %q", first, second)
	}
	if err := r.Tag("nobody/nothing:1", plain); err == nil {
		t.Error("a tag of nothing was made")
	}
	if c := r.Pulled(plain); c.Resolved != 2 || c.Manifests != 0 {
		t.Errorf("counts %+v; want that the tag was looked up twice", c)
	}
}

func TestVary(t *testing.T) {
	r := start(t, Options{})
	p := newPuller(t, r)
	seen := map[string]bool{}
	for _, name := range []string{"proa.test/own:1", "proa.test/own:2"} {
		if err := r.Vary(plain, name, 1000); err != nil {
			t.Fatal(err)
		}
		_, tag := split(name)
		data, err := p.fetch(t.Context(), "own/manifests/"+tag)
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Config struct{ Digest string }
			Layers []struct{ Digest string }
		}
		if err := json.Unmarshal(data, &m); err != nil || len(m.Layers) != 2 {
			t.Fatalf("%s, %v; want two layers", data, err)
		}
		seen[m.Layers[1].Digest] = true
		for _, digest := range []string{m.Config.Digest, m.Layers[0].Digest, m.Layers[1].Digest} {
			if _, err := p.fetch(t.Context(), "own/blobs/"+digest); err != nil {
				t.Errorf("blob %s: %v", digest, err)
			}
		}
	}
	if len(seen) != 2 {
		t.Error("two images have the same noise")
	}
	if err := r.Vary("proa.test/none:1", "proa.test/own:3", 1); err == nil {
		t.Error("an image was made of nothing")
	}
}

func TestRange(t *testing.T) {
	r := start(t, Options{})
	p := newPuller(t, r)
	data, err := p.fetch(t.Context(), "other/manifests/2")
	if err != nil {
		t.Fatal(err)
	}
	resp, part, err := p.get(t.Context(), r.URL()+"/v2/other/manifests/2",
		func(req *http.Request) { req.Header.Set("Range", "bytes=10-19") })
	if err != nil || resp.StatusCode != http.StatusPartialContent || string(part) != string(data[10:20]) {
		t.Errorf("%v %q, %v; want %q", resp.Status, part, err, data[10:20])
	}
}

func TestBadRequests(t *testing.T) {
	r := start(t, Options{})
	p := newPuller(t, r)
	for path, want := range map[string]int{
		"/v2/": 200, "/v2": 200, "/": 404, "/token": 404, "/v2/x": 404, "/v2/other/manifests/": 404, "/v2/other/blobs/sha256:00": 404,
		"/v2/other/manifests/sha256:00": 404, "/v2/none/tags/list": 404, "/v2/other/tags/list": 200, "/v2/_catalog": 200,
		"/v2/a/../../b":                 404,
		"/v2/other/referrers/sha256:00": 200, "/v2/other/what/x": 404,
	} {
		resp, _, err := p.get(t.Context(), r.URL()+path, func(*http.Request) {})
		if err != nil || resp.StatusCode != want {
			t.Errorf("%s: %v, %v; want %d", path, resp, err, want)
		}
	}
	resp, err := http.Post(r.URL()+"/v2/other/blobs/uploads/", "", strings.NewReader(""))
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a push: %v, %v", resp, err)
	}
	resp.Body.Close()
	if _, err := Start(t.Context(), Options{Archives: []string{"/nowhere"}}); err == nil {
		t.Error("an archive that is not there was served")
	}
	if _, err := Start(t.Context(), Options{Scheme: "ftp"}); err == nil {
		t.Error("ftp was served")
	}
}

func TestMirror(t *testing.T) {
	for scheme, want := range map[Scheme]string{
		HTTP:  "server = \"URL\"\ncapabilities = [\"pull\", \"resolve\"]\n",
		HTTPS: "server = \"URL\"\ncapabilities = [\"pull\", \"resolve\"]\nca = \"DIR/registry.k8s.io/ca.crt\"\n",
	} {
		r := start(t, Options{Scheme: scheme})
		dir := t.TempDir()
		if err := r.Mirror(dir, "registry.k8s.io"); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "registry.k8s.io", "hosts.toml"))
		got := strings.NewReplacer(r.URL(), "URL", dir, "DIR").Replace(string(data))
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", scheme, got, err, want)
		}
	}
}

func TestDockerConfig(t *testing.T) {
	r := start(t, Options{Auth: Basic, User: "u", Password: "p"})
	want := `{"auths":{"` + r.Addr + `":{"username":"u","password":"p","auth":"dTpw"},"proa.test":{"username":"u","password":"p","auth":"dTpw"}}}`
	if got := string(r.DockerConfig("proa.test")); got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

func TestSplit(t *testing.T) {
	for name, want := range map[string]string{
		"registry.k8s.io/pause:3.10.2": "pause 3.10.2",
		"registry.k8s.io/a/b:1":        "a/b 1",
		"127.0.0.1:5000/a":             "a latest",
		"localhost/a:1":                "a 1",
		"library/a":                    "library/a latest",
		"a:1":                          "a 1",
		"proa.test/tool":               "tool latest",
	} {
		if repository, tag := split(name); repository+" "+tag != want {
			t.Errorf("%s: %s %s; want %s", name, repository, tag, want)
		}
	}
}

// TestEndsWithContext checks that a registry ends with its context, also while it sends a response.
func TestEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := Start(ctx, Options{Archives: []string{writeArchive(t, "hello", plain)}, Rate: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := newPuller(t, r)
	var pulled sync.WaitGroup
	pulled.Go(func() { err = p.pull(t.Context(), "e2e/plain", "1") })
	for r.Pulled(plain).Manifests == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	pulled.Wait()
	if err == nil {
		t.Error("the pull went on")
	}
}
