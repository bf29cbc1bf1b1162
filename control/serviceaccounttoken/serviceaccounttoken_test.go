package serviceaccounttoken

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/kinds/lib/podrefs"
)

func TestDecide(t *testing.T) {
	for given, want := range textcase.Lines(t, "testdata/clean.txt") {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: "x", Labels: map[string]string{}, Annotations: map[string]string{corev1.ServiceAccountUIDKey: "u"},
			CreationTimestamp: metav1.NewTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)),
		}}
		w := world{
			now: time.Date(2026, 2, 20, 12, 0, 0, 0, time.UTC), period: 240 * time.Hour, since: "2025-01-01",
			mounted: func() bool { return false },
			account: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: "u"},
				Secrets: []corev1.ObjectReference{{Name: "y"}, {Name: "x"}}},
		}
		for word := range strings.FieldsSeq(given) {
			switch name, value, _ := strings.Cut(word, "="); name {
			case "since":
				w.since = value
			case "created":
				created, err := time.Parse(time.RFC3339, value)
				if err != nil {
					t.Fatal(err)
				}
				secret.CreationTimestamp = metav1.NewTime(created)
			case "used":
				secret.Labels[lastUsedLabel] = value
			case "invalid":
				secret.Labels[invalidSinceLabel] = value
			case "mounted":
				w.mounted = func() bool { return true }
			case "account":
				switch value {
				case "none":
					w.account = nil
				case "other":
					w.account.UID = "other"
				case "unlisted":
					w.account.Secrets = w.account.Secrets[:1]
				case "anyuid":
					delete(secret.Annotations, corev1.ServiceAccountUIDKey)
				}
			default:
				t.Fatalf("%s: what is %s", given, name)
			}
		}
		if got := []string{"keep", "mark", "remove"}[decide(secret, w)]; got != want {
			t.Errorf("%s: %s, not %s", given, got, want)
		}
	}
}

func TestUses(t *testing.T) {
	for given, want := range textcase.Lines(t, "testdata/pods.txt") {
		var spec corev1.PodSpec
		if err := yaml.UnmarshalStrict([]byte(given), &spec); err != nil {
			t.Fatalf("%s: %v", given, err)
		}
		if got := podrefs.UsesSecret(&spec, "x"); got != (want == "yes") {
			t.Errorf("%s: %v", given, got)
		}
	}
}

func TestFill(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", UID: "u"}}
	issue := func(a *corev1.ServiceAccount, secret string) (string, error) { return a.Name + "/" + secret, nil }
	empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x",
		Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}}
	full, err := filledSecret(empty, account, "PEM", issue)
	if err != nil || string(full.Data["token"]) != "robot/x" || string(full.Data["ca.crt"]) != "PEM" ||
		string(full.Data["namespace"]) != "ns" || full.Annotations[corev1.ServiceAccountUIDKey] != "u" {
		t.Fatalf("an empty one: %+v, %v", full, err)
	}
	if len(empty.Data) > 0 || len(empty.Annotations) != 1 {
		t.Errorf("the Secret of the view changed: %+v", empty)
	}
	if next, err := filledSecret(full, account, "PEM", issue); next != nil || err != nil {
		t.Errorf("a full one: %+v, %v", next, err)
	}
	if next, err := filledSecret(full, account, "", issue); next != nil || err != nil {
		t.Errorf("no CA: %+v, %v", next, err)
	}
	for _, c := range []struct{ key, have, want string }{
		{"token", "", "robot/x"}, {"token", "mine", "mine"}, {"ca.crt", "old", "PEM"}, {"namespace", "", "ns"},
		{"namespace", "other", "other"}, {"more", "data", "data"},
	} {
		have := full.DeepCopy()
		have.Data[c.key] = []byte(c.have)
		next, err := filledSecret(have, account, "PEM", issue)
		if err != nil {
			t.Fatal(err)
		}
		if next == nil {
			next = have
		}
		if got := string(next.Data[c.key]); got != c.want {
			t.Errorf("%s %q became %q", c.key, c.have, got)
		}
	}
	broken := func(*corev1.ServiceAccount, string) (string, error) { return "", errors.New("no key") }
	if next, err := filledSecret(empty, account, "PEM", broken); next != nil || err == nil {
		t.Errorf("no token can be made: %+v, %v", next, err)
	}
}
