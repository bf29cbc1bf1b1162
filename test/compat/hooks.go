package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"proa.dev/test/compat/answerdiff"
	"proa.dev/test/compat/compatcases"
)

// hook is one webhook of the corpus: what is answered at its path.
type hook struct {
	Response map[string]any `json:"response"` // of the AdmissionReview
	Patch    []any          `json:"patch"`
	// Review replaces parts of the whole answer.
	Review map[string]any `json:"review"`
	Code   int            `json:"code"`
	Text   string         `json:"text"` // answered as it is
	Type   string         `json:"type"`
	Delay  string         `json:"delay"`
	Move   string         `json:"move"` // redirects there
	// Echo denies and tells the whole request, as causes: so the requests that
	// the two servers send are compared like answers.
	Echo bool `json:"echo"`
	// Convert answers a ConversionReview by writing the version that is asked
	// for; Change is merged into every object of it.
	Convert bool           `json:"convert"`
	Change  map[string]any `json:"change"`
	Drop    bool           `json:"drop"` // leaves the last object out
}

// hooks is the HTTPS server that both servers ask.
type hooks struct {
	table  map[string]hook
	server *http.Server
	url    string
	bundle string // base64 of the PEM of its certificate
}

// startHooks serves the webhooks of a file on loopback.
func startHooks(file string) (*hooks, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	h := &hooks{}
	if err := yaml.UnmarshalStrict(data, &h.table); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	cert, bundle, err := hookCertificate()
	if err != nil {
		return nil, err
	}
	h.bundle = base64.StdEncoding.EncodeToString(bundle)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	h.url = "https://" + listener.Addr().String()
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() { _ = h.server.Serve(listener) }()
	return h, nil
}

func (h *hooks) stop() { _ = h.server.Close() }

// words are those of the corpus that name the server.
func (h *hooks) words() map[string]string {
	return map[string]string{"$HOOK": h.url, "$BUNDLE": h.bundle}
}

func hookCertificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hooks"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der},
		PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one, ok := h.table[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if d, err := time.ParseDuration(one.Delay); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	if one.Move != "" {
		http.Redirect(w, r, h.url+one.Move, http.StatusTemporaryRedirect)
		return
	}
	w.Header().Set("Content-Type", cmp.Or(one.Type, "application/json"))
	if one.Code != 0 {
		w.WriteHeader(one.Code)
	}
	if one.Text != "" || one.Code != 0 {
		_, _ = io.WriteString(w, one.Text)
		return
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil {
		return
	}
	v, err := answerdiff.ParseJSON(data)
	if err != nil {
		return
	}
	review, _ := v.(map[string]any)
	_, _ = w.Write(answerdiff.Encode(one.answer(review)))
}

// answer is the review that a hook sends back.
func (one hook) answer(review map[string]any) map[string]any {
	request, _ := review["request"].(map[string]any)
	response := map[string]any{"uid": request["uid"]}
	switch {
	case one.Convert:
		response["convertedObjects"] = one.convert(request)
		response["result"] = map[string]any{"status": "Success"}
	case one.Echo:
		response["allowed"] = false
		response["status"] = map[string]any{"message": "told", "code": 400, "details": map[string]any{"causes": tell(review)}}
	}
	compatcases.Merge(response, answerdiff.CopyTree(any(one.Response)))
	if one.Patch != nil {
		response["patchType"] = "JSONPatch"
		response["patch"] = base64.StdEncoding.EncodeToString(answerdiff.Encode(one.Patch))
	}
	out := map[string]any{"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
	compatcases.Merge(out, answerdiff.CopyTree(any(one.Review)))
	return out
}

func (one hook) convert(request map[string]any) []any {
	objects := []any{}
	for _, v := range answerdiff.List(request, "objects") {
		o, _ := v.(map[string]any)
		o["apiVersion"] = request["desiredAPIVersion"]
		objects = append(objects, compatcases.Merge(o, answerdiff.CopyTree(any(one.Change))))
	}
	if one.Drop && len(objects) > 0 {
		objects = objects[:len(objects)-1]
	}
	return objects
}

// tell lists every leaf of a request as a cause of a Status. Who asks has a
// name of the system's own, so that is left out.
func tell(v any) []any {
	var out []any
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch x := v.(type) {
		case map[string]any:
			if len(x) == 0 {
				out = append(out, map[string]any{"field": path, "message": "{}"})
			}
			keys := make([]string, 0, len(x))
			for k := range x {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				if k != "managedFields" {
					walk(path+"."+k, x[k])
				}
			}
		case []any:
			for i, item := range x {
				walk(path+"["+strconv.Itoa(i)+"]", item)
			}
		default:
			data, err := json.Marshal(x)
			if err != nil {
				return
			}
			message := strings.NewReplacer("kubernetes-admin", "the-admin", "proa-admin", "the-admin").Replace(string(data))
			switch path[strings.LastIndex(path, ".")+1:] {
			case "uid", "resourceVersion":
				message = "<set>"
			}
			out = append(out, map[string]any{"field": strings.TrimPrefix(path, "."), "message": message})
		}
	}
	walk("", v)
	return out
}
