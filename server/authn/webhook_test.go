package authn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"proa.dev/server/expirycache"
)

// TestWebhook checks which user, or which error, each response of the webhook leads to.
func TestWebhook(t *testing.T) {
	for _, test := range []struct{ name, response, want string }{
		{"known", `{"kind":"TokenReview","status":{"authenticated":true,"user":{"username":"ann","uid":"7","groups":["a"],"extra":{"k":["v"]}}}}`, `ann 7 [a] map[k:[v]] audiences []`},
		{"for an audience", `{"kind":"TokenReview","status":{"authenticated":true,"audiences":["api","x"],"user":{"username":"ann"}}}`, `ann  [] map[] audiences [api]`},
		{"for another audience", `{"kind":"TokenReview","status":{"authenticated":true,"audiences":["x"],"user":{"username":"ann"}}}`, `nobody`},
		{"not known", `{"kind":"TokenReview","status":{"authenticated":false}}`, `nobody`},
		{"refused", `{"kind":"TokenReview","status":{"error":"no such token"}}`, `error: no such token`},
		{"another kind", `{"kind":"Pod"}`, `error: the webhook answered with something else than a TokenReview`},
		{"no JSON", `<html>`, `error: read what the webhook says about a token: invalid character '<' looking for beginning of value`},
		{"away", ``, `error: ask the webhook about a token: away`},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &Webhook{Version: "v1beta1", Post: func(_ context.Context, body []byte) ([]byte, error) {
				if want := `"spec":{"token":"secret","audiences":["api"]}`; !strings.Contains(string(body), want) ||
					!strings.Contains(string(body), `"apiVersion":"authentication.k8s.io/v1beta1"`) {
					t.Errorf("sent %s, want %s in it", body, want)
				}
				if test.response == "" {
					return nil, errors.New("away")
				}
				return []byte(test.response), nil
			}}
			who, accepted, ok, err := w.Verify(t.Context(), "secret", []string{"api"})
			got := "nobody"
			switch {
			case err != nil:
				got = "error: " + err.Error()
			case ok:
				got = fmt.Sprintf("%s %s %v %v audiences %v", who.GetName(), who.GetUID(), who.GetGroups(), who.GetExtra(), accepted)
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestWebhookResponsesAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, failing := 0, false
		w := &Webhook{Version: "v1", CacheTTL: time.Minute, Post: func(_ context.Context, body []byte) ([]byte, error) {
			calls++
			if failing {
				return nil, errors.New("away")
			}
			var r authenticationv1.TokenReview
			if err := json.Unmarshal(body, &r); err != nil {
				t.Error(err)
			}
			r.Status.Authenticated = r.Spec.Token == "good"
			return json.Marshal(r)
		}}
		authenticate := func(token string, want bool) {
			t.Helper()
			if _, _, ok, err := w.Verify(t.Context(), token, nil); ok != want || err != nil {
				t.Errorf("%s: %t, %v", token, ok, err)
			}
		}
		for range 3 {
			authenticate("good", true)
			authenticate("bad", false)
		}
		if calls != 2 {
			t.Errorf("called %d times for two tokens", calls)
		}
		failing = true
		authenticate("good", true)
		time.Sleep(time.Minute)
		for n := range 2 {
			if _, _, _, err := w.Verify(t.Context(), "good", nil); err == nil || calls != 3+n {
				t.Errorf("a failure was kept: %v after %d questions", err, calls)
			}
		}
		failing = false
		for n := range expirycache.DefaultLimit + 10 {
			authenticate(fmt.Sprint(n), false)
		}
		if w.answers.Len() > expirycache.DefaultLimit {
			t.Errorf("%d answers are kept", w.answers.Len())
		}
	})
}

func TestTokenFile(t *testing.T) {
	verify, err := TokenFile(strings.NewReader("one,ann,7,\"a,b\"\ntwo,bob,8\n"))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"one": "ann 7 [a b]", "two": "bob 8 []", "three": "", "": ""} {
		who, _, ok, err := verify(t.Context(), token, nil)
		got := ""
		if ok {
			got = fmt.Sprintf("%s %s %v", who.GetName(), who.GetUID(), who.GetGroups())
		}
		if got != want || err != nil {
			t.Errorf("%q is %q, %v; want %q", token, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"one,ann\n":              "line 1 must have at least 3 columns (token, user name, user uid), found 2",
		"a,b,c\n,ann,7\n":        "line 2: the token is empty",
		"one,ann,7\none,bob,8\n": "line 2: the token of bob is there twice",
		"one,\"ann,7\n":          "extraneous or missing \" in quoted-field",
	} {
		if _, err := TokenFile(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
}

// TestHostileTokenWebhooks checks that users and errors of a webhook are bounded, and the cached ones together.
func TestHostileTokenWebhooks(t *testing.T) {
	user := func(bytes int) string {
		return `{"kind":"TokenReview","status":{"authenticated":true,"user":{"username":"ann","extra":{"k":["` + strings.Repeat("x", bytes) + `"]}}}}`
	}
	for _, test := range []struct {
		what, answer, want string
		kept               int // of 200 tokens, at most
	}{
		{"a large user", user(400 << 10), "", 64 << 20 / (400 << 10)},
		{"a larger user", user(maxUser), fmt.Sprintf("more than %d bytes", maxUser), 0},
		{"a long error", `{"kind":"TokenReview","status":{"error":"` + strings.Repeat("x", 100<<10) + `"}}`, "xxx", 64 << 20 / (100 << 10)},
	} {
		post := func(context.Context, []byte) ([]byte, error) { return []byte(test.answer), nil }
		w := &Webhook{Version: "v1", CacheTTL: time.Hour, Post: post}
		for i := range 200 {
			_, _, ok, err := w.Verify(t.Context(), fmt.Sprint(i), nil)
			if ok != (test.want == "") || !ok && (!strings.Contains(err.Error(), test.want) || len(err.Error()) > maxError) {
				t.Fatalf("%s: %v, %.100v", test.what, ok, err)
			}
		}
		if w.answers.Len() > test.kept {
			t.Errorf("%s: %d answers are kept, want at most %d", test.what, w.answers.Len(), test.kept)
		}
	}
}
