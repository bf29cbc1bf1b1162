package bootstrap

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const config, secret = "apiVersion: v1\nkind: Config\n", "0123456789abcdef"

func TestSignature(t *testing.T) {
	want, err := os.ReadFile("testdata/signature.txt") // made by another program
	if err != nil {
		t.Fatal(err)
	}
	if got := signature(config, "abcdef", secret); got != strings.TrimSpace(string(want)) {
		t.Errorf("got %s", got)
	}
}

// TestSigned runs the lines of testdata/sign.txt.
func TestSigned(t *testing.T) {
	text, err := os.ReadFile("testdata/sign.txt")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		left, want, _ := strings.Cut(line, "->")
		have := map[string]string{"other": "data"}
		var tokens []*corev1.Secret
		for word := range strings.FieldsSeq(left) {
			switch id := strings.TrimRight(word, "=!"); {
			case word == "kubeconfig":
				have["kubeconfig"] = config
			case strings.HasSuffix(word, "="):
				have[signaturePrefix+id] = signature(config, id, secret)
			case strings.HasSuffix(word, "!"):
				have[signaturePrefix+id] = "wrong"
			default:
				tokens = append(tokens, token(word, now))
			}
		}
		data, again := signed(have, slices.Values(tokens), now)
		if got := told(t, data, again); got != strings.TrimSpace(want) {
			t.Errorf("%s: got %s", strings.TrimSpace(line), got)
		}
	}
}

// token makes a Secret of ID:WORD.
func token(word string, now time.Time) *corev1.Secret {
	id, how, _ := strings.Cut(word, ":")
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(secret), "usage-bootstrap-signing": []byte("true")},
	}
	switch how {
	case "":
	case "unusable":
		s.Data["usage-bootstrap-signing"] = []byte("yes")
	case "nosecret":
		delete(s.Data, "token-secret")
	case "noid":
		delete(s.Data, "token-id")
	case "misnamed":
		s.Name = "bootstrap-token-others"
	case "opaque":
		s.Type = corev1.SecretTypeOpaque
	case "elsewhere":
		s.Namespace = "default"
	default:
		s.Data["expiration"] = []byte(how)
		if d, err := time.ParseDuration(how); err == nil {
			s.Data["expiration"] = []byte(now.Add(d).Format(time.RFC3339))
		}
	}
	return s
}

func told(t *testing.T, data map[string]string, again time.Duration) string {
	t.Helper()
	var words []string
	for k, v := range data {
		if id, is := strings.CutPrefix(k, signaturePrefix); is {
			words = append(words, id)
			if v != signature(config, id, secret) {
				t.Errorf("the signature of %s is %s", id, v)
			}
		}
	}
	switch {
	case data == nil:
		words = append(words, "nothing")
	case len(words) == 0:
		words = append(words, "none")
	}
	if data != nil && (data["kubeconfig"] != config || data["other"] != "data") {
		t.Errorf("the rest of the map is %v", data)
	}
	slices.Sort(words)
	if again > 0 {
		words = append(words, "again", again.String())
	}
	return strings.Join(words, " ")
}
