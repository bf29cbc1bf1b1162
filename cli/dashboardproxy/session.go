package dashboardproxy

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"

	"proa.dev/ui"
)

const (
	// keyHeader is the header with the key of a session. Pages of other origins cannot send it, and unlike a cookie it is not sent to
	// servers on other ports of the machine.
	keyHeader = "X-Proa-Dashboard"
	// keyProtocolPrefix precedes the same key among the subprotocols of a WebSocket.
	keyProtocolPrefix = "key.dashboard.proa.dev."
	// maxWrongCodes is how many wrong codes may be tried.
	maxWrongCodes = 5
	// maxSessions is how many browsers may be logged in.
	maxSessions = 64
	// maxCodeBody bounds the body of a request with a code.
	maxCodeBody = 1 << 10
)

// sessions are the browsers that have logged in. Cookies and keys are kept as hashes, by which they are also found, so that comparing
// them tells nothing about them.
type sessions struct {
	cookie string // the name of the cookie, with the port: cookies are shared by all ports of a machine

	mu     sync.Mutex // guards what follows
	code   string     // eight digits, for the user to type
	ticket string     // long, for the file that the browser opens; empty when it was used
	wrong  int
	open   map[[sha256.Size]byte]bool
}

func newSessions(port string) *sessions {
	return &sessions{cookie: "proa-dashboard-" + port, code: newCode(), ticket: rand.Text() + rand.Text(),
		open: map[[sha256.Size]byte]bool{}}
}

// newCode returns eight random digits.
func newCode() string {
	n, err := rand.Int(rand.Reader, big.NewInt(1e8))
	if err != nil { // it never fails: crypto/rand ends the process instead
		return rand.Text()
	}
	return fmt.Sprintf("%08d", n.Int64())
}

func (s *sessions) currentCode() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.code
}

func (s *sessions) currentTicket() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ticket
}

// result is what became of a code.
type result int

const (
	accepted result = iota
	wrong
	locked
)

// useCode checks the code of a user and replaces it when it was right. After maxWrongCodes wrong ones none is right any more.
func (s *sessions) useCode(code string) result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wrong >= maxWrongCodes {
		return locked
	}
	if subtle.ConstantTimeCompare([]byte(code), []byte(s.code)) != 1 {
		s.wrong++
		if s.wrong >= maxWrongCodes {
			return locked
		}
		return wrong
	}
	s.code = newCode()
	return accepted
}

// useTicket checks the ticket of the file that the browser has opened. It is too long to be guessed, so wrong ones are not counted.
func (s *sessions) useTicket(ticket string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ticket == "" || subtle.ConstantTimeCompare([]byte(ticket), []byte(s.ticket)) != 1 {
		return false
	}
	s.ticket = ""
	return true
}

// add begins a session and returns its key. It sets the cookie.
func (s *sessions) add(w http.ResponseWriter) (key string, ok bool) {
	cookie := rand.Text() + rand.Text()
	key = rand.Text() + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= maxSessions {
		return "", false
	}
	s.open[hashOf(cookie, key)] = true
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return key, true
}

// knows says that the cookie of a request and a key belong to the same session.
func (s *sessions) knows(req *http.Request, key string) bool {
	cookie, err := req.Cookie(s.cookie)
	if err != nil || key == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[hashOf(cookie.Value, key)]
}

// end ends the session of a request.
func (s *sessions) end(req *http.Request, key string) {
	if cookie, err := req.Cookie(s.cookie); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, hashOf(cookie.Value, key))
	}
}

func hashOf(cookie, key string) [sha256.Size]byte { return sha256.Sum256([]byte(cookie + " " + key)) }

// keyOfProtocols returns the key among the subprotocols of a WebSocket request.
func keyOfProtocols(head http.Header) string {
	for _, protocol := range protocolsOf(head) {
		if key, ok := strings.CutPrefix(protocol, keyProtocolPrefix); ok {
			return key
		}
	}
	return ""
}

// withoutKey returns the subprotocols except the one with the key.
func withoutKey(protocols []string) (out []string) {
	for _, protocol := range protocols {
		if !strings.HasPrefix(protocol, keyProtocolPrefix) {
			out = append(out, protocol)
		}
	}
	return out
}

// serveSession lets a browser log in with the code (POST), ask whether it is logged in (GET) and log out (DELETE).
func (p *Proxy) serveSession(w http.ResponseWriter, req *http.Request) {
	key := req.Header.Get(keyHeader)
	if !p.fromOwnPage(req) || key == "" {
		refuse(w, http.StatusForbidden, "the request comes from another page")
		return
	}
	switch req.Method {
	case http.MethodGet:
		if !p.sessions.knows(req, key) {
			refuse(w, http.StatusUnauthorized, "not logged in")
			return
		}
		p.writeSession(w, key)
	case http.MethodDelete:
		p.sessions.end(req, key)
		p.writeSession(w, "")
	case http.MethodPost:
		p.logIn(w, req)
	default:
		refuse(w, http.StatusMethodNotAllowed, "only GET, POST and DELETE")
	}
}

// logIn reads a code and begins a session if it is right.
func (p *Proxy) logIn(w http.ResponseWriter, req *http.Request) {
	var body struct {
		Code string `json:"code"`
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxCodeBody))
	if err != nil || json.Unmarshal(data, &body) != nil {
		refuse(w, http.StatusBadRequest, "the body must be {\"code\": \"12345678\"}")
		return
	}
	code := strings.NewReplacer(" ", "", "-", "").Replace(body.Code)
	switch p.sessions.useCode(code) {
	case wrong:
		refuse(w, http.StatusUnauthorized, "This is not the code that the terminal shows.")
	case locked:
		refuse(w, http.StatusForbidden, "Too many wrong codes. Start \"proa dashboard\" again.")
		if p.config.Locked != nil {
			p.config.Locked()
		}
	case accepted:
		key, ok := p.sessions.add(w)
		if !ok {
			refuse(w, http.StatusTooManyRequests, "Too many browsers are logged in. Start \"proa dashboard\" again.")
			return
		}
		p.writeSession(w, key)
		if p.config.LoggedIn != nil {
			p.config.LoggedIn()
		}
	}
}

// writeSession tells the page what it is connected to.
func (p *Proxy) writeSession(w http.ResponseWriter, key string) {
	protectAnswer(w.Header())
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]string{}
	if key != "" {
		answer = map[string]string{"key": key, "server": p.config.Server, "namespace": p.config.Namespace}
	}
	_ = json.NewEncoder(w).Encode(answer) // a client that has gone needs no answer
}

// enter lets the browser in that has opened the file of LoginFile. The file has no origin, so its form may be sent from anywhere; the
// ticket in it is what counts. The answer hands the key to the page, which keeps it.
func (p *Proxy) enter(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost || req.Header.Get("Origin") != "null" {
		refuse(w, http.StatusForbidden, "open "+p.Address()+" and enter the code that the terminal shows")
		return
	}
	req.Body = http.MaxBytesReader(w, req.Body, maxCodeBody)
	if !p.sessions.useTicket(req.PostFormValue("ticket")) {
		http.Redirect(w, req, ui.Path, http.StatusSeeOther) // the page asks for the code
		return
	}
	key, ok := p.sessions.add(w)
	if !ok {
		refuse(w, http.StatusTooManyRequests, "too many browsers are logged in")
		return
	}
	ui.SetSecurityHeaders(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"key\" content=\"%s\">"+
		"<title>proa</title><script src=\"%senter.js\"></script>\n", html.EscapeString(key), ui.Path)
}

// LoginFile returns the content of a file that logs a browser in which opens it. So the ticket is neither in an address nor among the
// arguments of a process.
func (p *Proxy) LoginFile() string {
	return fmt.Sprintf(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>proa dashboard</title>
<form method="post" action="http://%s%s"><input type="hidden" name="ticket" value="%s"><button>Open the dashboard</button></form>
<script>document.forms[0].submit()</script>
`, p.host, enterPath, html.EscapeString(p.sessions.currentTicket()))
}
