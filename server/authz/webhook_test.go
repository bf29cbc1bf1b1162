package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/expirycache"
)

func requestAttributes(verb, resource string) Attributes {
	who := &user.DefaultInfo{Name: "ann", UID: "7", Groups: []string{"a"}, Extra: map[string][]string{"k": {"v"}}}
	return Attributes{User: who, Verb: verb, Resource: resource, Version: "v1", Namespace: "ns", IsResource: true}
}

func TestWebhook(t *testing.T) {
	for _, test := range []struct {
		name, version, response string
		change                  func(*Webhook, *Attributes)
		sent, want              string
	}{
		{"allowed", "v1", `{"kind":"SubjectAccessReview","status":{"allowed":true,"reason":"why not"}}`, nil,
			`"spec":{"resourceAttributes":{"namespace":"ns","verb":"get","version":"v1","resource":"pods"},"user":"ann","groups":["a"],"extra":{"k":["v"]},"uid":"7"}`, "Allow why not"},
		{"an older version", "v1beta1", `{"kind":"SubjectAccessReview","status":{"denied":true,"reason":"no"}}`, nil,
			`"spec":{"resourceAttributes":{"namespace":"ns","verb":"get","version":"v1","resource":"pods"},"user":"ann","group":["a"],"extra":{"k":["v"]},"uid":"7"}`, "Deny no"},
		{"not for a resource", "v1", `{"kind":"SubjectAccessReview","status":{}}`,
			func(_ *Webhook, a *Attributes) { a.IsResource, a.Path = false, "/x" },
			`"spec":{"nonResourceAttributes":{"path":"/x","verb":"get"},"user":"ann","groups":["a"],"extra":{"k":["v"]},"uid":"7"}`, "NoOpinion "},
		{"selectors", "v1", `{"kind":"SubjectAccessReview","status":{}}`,
			func(_ *Webhook, a *Attributes) { a.ParseSelectors("spec.nodeName=x,metadata.name!=y", "a in (c,b),!d") },
			`"fieldSelector":{"requirements":[{"key":"metadata.name","operator":"NotIn","values":["y"]},{"key":"spec.nodeName","operator":"In","values":["x"]}]},` +
				`"labelSelector":{"requirements":[{"key":"a","operator":"In","values":["b","c"]},{"key":"d","operator":"DoesNotExist"}]}`, "NoOpinion "},
		{"both", "v1", `{"kind":"SubjectAccessReview","status":{"allowed":true,"denied":true}}`, nil, "", "Deny  error: webhook subject access review returned both allow and deny response"},
		{"another kind", "v1", `{"kind":"Status"}`, nil, "", `NoOpinion  error: the authorization webhook answered with a "Status", not a SubjectAccessReview`},
		{"away", "v1", "", nil, "", "NoOpinion  error: ask the authorization webhook: away"},
		{"unavailable, with the failure policy Deny", "v1", "", func(w *Webhook, _ *Attributes) { w.OnFailure = Deny }, "",
			"Deny  error: ask the authorization webhook: away"},
		{"a match condition is false", "v1", `{"kind":"SubjectAccessReview","status":{"allowed":true}}`, func(w *Webhook, _ *Attributes) {
			w.Match = func(context.Context, *authorizationv1.SubjectAccessReview) (bool, error) { return false, nil }
		}, "", "NoOpinion "},
		{"no decision", "v1", "", func(w *Webhook, _ *Attributes) {
			w.OnFailure = Deny
			w.Match = func(context.Context, *authorizationv1.SubjectAccessReview) (bool, error) {
				return false, errors.New("bad rule")
			}
		}, "", "Deny  error: bad rule"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &Webhook{Version: test.version, Post: func(_ context.Context, body []byte) ([]byte, error) {
				if !strings.Contains(string(body), test.sent) ||
					!strings.Contains(string(body), `"apiVersion":"authorization.k8s.io/`+test.version+`"`) {
					t.Errorf("sent %s\nwant %s in it", body, test.sent)
				}
				if test.response == "" {
					return nil, errors.New("away")
				}
				return []byte(test.response), nil
			}}
			a := requestAttributes("get", "pods")
			if test.change != nil {
				test.change(w, &a)
			}
			decision, reason, err := w.Authorize(t.Context(), a)
			got := fmt.Sprint(decision, " ", reason)
			if err != nil {
				got += " error: " + err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestWebhookDecisionsAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := 0
		w := &Webhook{Version: "v1", AllowedTTL: time.Minute, DeniedTTL: time.Second,
			Post: func(_ context.Context, body []byte) ([]byte, error) {
				count++
				return fmt.Appendf(nil, `{"kind":"SubjectAccessReview","status":{"allowed":%t}}`,
					strings.Contains(string(body), "pods")), nil
			}}
		authorize := func(resource string, want int) {
			t.Helper()
			if _, _, err := w.Authorize(t.Context(), requestAttributes("get", resource)); err != nil || count != want {
				t.Errorf("%s: called %d times, want %d; %v", resource, count, want, err)
			}
		}
		authorize("pods", 1)
		authorize("pods", 1)
		authorize("secrets", 2)
		authorize("secrets", 2)
		time.Sleep(time.Second)
		authorize("secrets", 3)
		authorize("pods", 3)
		time.Sleep(time.Minute)
		authorize("pods", 4)
		long := strings.Repeat("x", maxQuestion)
		authorize(long, 5)
		authorize(long, 6)
		for n := range expirycache.DefaultLimit + 10 {
			authorize(fmt.Sprint(n), 7+n)
		}
		if w.answers.Len() > expirycache.DefaultLimit {
			t.Errorf("%d are kept", w.answers.Len())
		}
	})
}

// TestReasonsOfWebhooksAreBounded checks that a long reason is cut before clients and the audit log get it.
func TestReasonsOfWebhooksAreBounded(t *testing.T) {
	w := &Webhook{Version: "v1", DeniedTTL: time.Hour, Post: func(context.Context, []byte) ([]byte, error) {
		return []byte(`{"kind":"SubjectAccessReview","status":{"denied":true,"reason":"` + strings.Repeat("x", 1<<20) + `"}}`), nil
	}}
	for range 2 {
		d, reason, err := w.Authorize(t.Context(), requestAttributes("get", "pods"))
		if d != Deny || len(reason) != maxReason || err != nil {
			t.Errorf("%v with a reason of %d bytes, %v", d, len(reason), err)
		}
	}
}
