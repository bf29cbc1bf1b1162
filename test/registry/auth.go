package registry

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// allowed tells whether a request may go on. If not, it is answered.
func (r *Registry) allowed(w http.ResponseWriter, req *http.Request, repository string) bool {
	switch r.options.Auth {
	case Basic:
		user, password, _ := req.BasicAuth()
		if r.known(user, password) {
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	case Token:
		token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		if ok && (repository == "" || same(token, r.sign(repository))) {
			return true
		}
		ask := fmt.Sprintf(`Bearer realm="%s/token",service="%s"`, r.URL(), r.Addr)
		if repository != "" {
			ask += fmt.Sprintf(`,scope="repository:%s:pull"`, repository)
		}
		w.Header().Set("WWW-Authenticate", ask)
	case Anonymous:
		return true
	}
	if repository != "" {
		r.refused(repository)
	}
	fail(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	return false
}

func (r *Registry) known(user, password string) bool {
	return same(user, r.options.User) && same(password, r.options.Password)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// sign returns a token that is valid for one repository.
func (r *Registry) sign(repository string) string {
	h := hmac.New(sha256.New, r.key)
	h.Write([]byte(repository))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// token gives tokens to those who know the password, asked in either of the two
// usual ways: basic authentication, or a form.
func (r *Registry) token(w http.ResponseWriter, req *http.Request) {
	req.Body = http.MaxBytesReader(w, req.Body, 64<<10)
	if err := req.ParseForm(); err != nil {
		fail(w, http.StatusBadRequest, "UNKNOWN", err.Error())
		return
	}
	user, password, ok := req.BasicAuth()
	if !ok {
		user, password = req.PostForm.Get("username"), req.PostForm.Get("password")
	}
	if !r.known(user, password) {
		fail(w, http.StatusUnauthorized, "UNAUTHORIZED", "incorrect username or password")
		return
	}
	repository := ""
	if parts := strings.SplitN(req.Form.Get("scope"), ":", 3); len(parts) == 3 && parts[0] == "repository" {
		repository = parts[1]
	}
	token := r.sign(repository)
	w.Header().Set("Content-Type", "application/json")
	// a client that is gone needs no answer
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "access_token": token, "expires_in": 300})
}

// Credentials are the user and the password that the registry knows.
func (r *Registry) Credentials() (user, password string) { return r.options.User, r.options.Password }

// DockerConfig is a .dockerconfigjson, as image pull secrets have it, that lets
// its bearer in, here and at the hosts that are said to be here.
func (r *Registry) DockerConfig(hosts ...string) []byte {
	type entry struct {
		Username string `json:"username"`
		Password string `json:"password"`
		Auth     string `json:"auth"`
	}
	user, password := r.Credentials()
	e := entry{user, password, base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}
	all := map[string]entry{r.Addr: e}
	for _, host := range hosts {
		all[host] = e
	}
	data, err := json.Marshal(map[string]any{"auths": all})
	if err != nil {
		panic(err) // texts can always be written
	}
	return data
}
