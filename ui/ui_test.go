package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// get asks a handler for a path.
func get(t *testing.T, h http.Handler, method, path string, header ...string) *http.Response {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Result()
}

func TestServing(t *testing.T) {
	h, err := New(Server)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		code         int
		contentType  string
	}{
		{"GET", "/dashboard/", http.StatusOK, "text/html; charset=utf-8"},
		{"HEAD", "/dashboard/", http.StatusOK, "text/html; charset=utf-8"},
		{"GET", "/dashboard/app.js", http.StatusOK, "text/javascript; charset=utf-8"},
		{"GET", "/dashboard/style.css", http.StatusOK, "text/css; charset=utf-8"},
		{"GET", "/dashboard/icon.svg", http.StatusOK, "image/svg+xml"},
		{"GET", "/dashboard", http.StatusPermanentRedirect, ""},
		{"GET", "/dashboard/nothing.js", http.StatusNotFound, ""},
		{"GET", "/dashboard/../ui.go", http.StatusNotFound, ""},
		{"GET", "/dashboard/static/app.js", http.StatusNotFound, ""},
		{"POST", "/dashboard/", http.StatusMethodNotAllowed, ""},
	} {
		resp := get(t, h, c.method, c.path)
		if resp.StatusCode != c.code || (c.contentType != "" && resp.Header.Get("Content-Type") != c.contentType) {
			t.Errorf("%s %s: %d %s", c.method, c.path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		// No answer may be put into a frame, be sniffed, or tell others its address; not even an error.
		policy := ContentSecurityPolicy
		if c.code == http.StatusOK && c.path == Path {
			policy = h.documentPolicy
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q", c.method, c.path, name, got)
			}
		}
	}
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
		if !strings.Contains(ContentSecurityPolicy, part) {
			t.Errorf("the policy lacks %s", part)
		}
	}
	for _, part := range []string{"unsafe", "http", "data:", "blob:", "*"} {
		if strings.Contains(ContentSecurityPolicy, part) {
			t.Errorf("the policy has %s: inline script, other servers or what a text can hold", part)
		}
	}
}

// TestDocumentIsWhole holds that the document has its style, the script of the theme and the one that loads the modules in it, that its
// policy allows these three by their hashes and nothing more than the policy of the other files, and that it asks for no file that competes
// with its first paint.
func TestDocumentIsWhole(t *testing.T) {
	h, err := New(Server)
	if err != nil {
		t.Fatal(err)
	}
	resp := get(t, h, "GET", "/dashboard/")
	body, _ := io.ReadAll(resp.Body)
	policy := resp.Header.Get("Content-Security-Policy")
	count := map[string]int{}
	for _, m := range regexp.MustCompile(`(?s)<(style|script)>(.*?)</`).FindAllSubmatch(body, -1) {
		element := string(m[1])
		count[element]++
		sum := sha256.Sum256(m[2])
		hash := " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		_, sources, _ := strings.Cut(policy, element+"-src")
		sources, _, _ = strings.Cut(sources, ";")
		if len(m[2]) < 100 || !strings.Contains(sources, hash) {
			t.Errorf("the policy does not allow a %s of the document: %s", element, policy)
		}
		policy = strings.Replace(policy, hash, "", 1)
	}
	if count["style"] != 1 || count["script"] != 2 {
		t.Errorf("the document has %v in it", count)
	}
	if policy != ContentSecurityPolicy {
		t.Errorf("beside the hashes, the policy of the document is %s", policy)
	}
	if other := regexp.MustCompile(`rel="(stylesheet|modulepreload|preload)"|<script [^>]*src=`).Find(body); other != nil {
		t.Errorf("the first paint waits for another file, or competes with it: %s", other)
	}
}

func TestCompressionAndCaching(t *testing.T) {
	h, err := New(Server)
	if err != nil {
		t.Fatal(err)
	}
	plain := get(t, h, "GET", "/dashboard/app.js")
	want, _ := io.ReadAll(plain.Body)
	if plain.Header.Get("Content-Encoding") != "" {
		t.Error("an answer is compressed for a client that did not ask for it")
	}
	packed := get(t, h, "GET", "/dashboard/app.js", "Accept-Encoding", "br, gzip")
	if packed.Header.Get("Content-Encoding") != "gzip" {
		t.Fatal("an answer is not compressed")
	}
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(z)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the compressed answer is another one: %v", err)
	}
	if got := get(t, h, "GET", "/dashboard/app.js", "Accept-Encoding", "gzip;q=0").Header.Get("Content-Encoding"); got != "" {
		t.Errorf("a client that refuses gzip got %s", got)
	}
	etag := plain.Header.Get("Etag")
	if resp := get(t, h, "GET", "/dashboard/app.js", "If-None-Match", etag); etag == "" || resp.StatusCode != http.StatusNotModified {
		t.Errorf("a file that the browser has was answered with %d", resp.StatusCode)
	}
}

func TestWhoServesThePage(t *testing.T) {
	for via, want := range map[Via]string{Server: `data-via="server"`, Proxy: `data-via="proxy"`} {
		h, err := New(via)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(get(t, h, "GET", "/dashboard/").Body)
		if !strings.Contains(string(body), want) {
			t.Errorf("the page of the %s does not say so", via)
		}
	}
}

// files returns the embedded files.
func files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := static.ReadFile(name)
		out[strings.TrimPrefix(name, "static/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSize(t *testing.T) {
	const limit = 300 << 10
	sum := 0
	for _, text := range files(t) {
		sum += len(text)
	}
	if sum > limit {
		t.Errorf("the dashboard has %d bytes, more than %d", sum, limit)
	}
}

// TestTextNeverBecomesMarkup holds that no file has a way from a string to markup, script or style: names, messages and logs of a
// cluster are chosen by others.
func TestTextNeverBecomesMarkup(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|createContextualFragment|setHTML|` +
		`cssText|setAttribute\('style'|\.srcdoc|javascript:|setTimeout\(['"` + "`" + `]|dangerously`)
	elsewhere := regexp.MustCompile(`(?i)https?://|//cdn|@import|\burl\(['"]?[a-z/]`)
	inline := regexp.MustCompile(`(?i)<script(?:[^>]*)>[^<]|<style| on[a-z]+="| style="`)
	for name, text := range files(t) {
		if strings.HasSuffix(name, ".js") {
			if found := forbidden.FindString(text); found != "" {
				t.Errorf("%s uses %s", name, found)
			}
		}
		// The names of XML are no addresses that anybody asks.
		rest := strings.NewReplacer("http://www.w3.org/2000/svg", "", "/^https?:", "").Replace(text)
		if found := elsewhere.FindString(rest); found != "" && (!strings.HasPrefix(found, "url(") || strings.HasSuffix(name, ".css")) {
			t.Errorf("%s names something on another server: %s", name, found)
		}
		if strings.HasSuffix(name, ".html") {
			if found := inline.FindString(text); found != "" {
				t.Errorf("%s has inline script or style: %s", name, found)
			}
		}
	}
}

// TestNothingSecretIsKept holds that a bearer token gets into no storage, cookie or address.
func TestNothingSecretIsKept(t *testing.T) {
	kept := regexp.MustCompile(`(?:localStorage|sessionStorage)\.setItem\(([^,]*),\s*([^)]*)\)|document\.cookie`)
	for name, text := range files(t) {
		for _, m := range kept.FindAllStringSubmatch(text, -1) {
			what := m[1] + " " + m[2]
			if what != "'proa.theme' next" && what != "'proa.key' answer.key" && what != "'proa.key' key" {
				t.Errorf("%s keeps %s", name, m[0])
			}
		}
	}
}
