package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
)

// login is a name and a password for a registry, and their source.
type login struct {
	Username, Password string
	from               owner
}

// owner is the object that a login came from. The zero value stands for the node, whose logins all Pods may use.
type owner struct {
	Secret          bool // a Secret, not a service account
	Account         bool
	UID             string
	Namespace, Name string
}

// auth returns the login in the form of the runtime.
func (l login) auth() *cri.AuthConfig {
	return &cri.AuthConfig{Username: l.Username, Password: l.Password}
}

// hash identifies a login without revealing it.
func (l login) hash() string {
	text, err := json.Marshal(map[string]string{"username": l.Username, "password": l.Password})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// loginIndex finds logins by the location of an image. A location is a host with an optional path; the host may have
// wildcards.
type loginIndex struct{ logins map[string][]login }

func (k *loginIndex) add(place string, l login) {
	if !strings.HasPrefix(place, "https://") && !strings.HasPrefix(place, "http://") {
		place = "https://" + place
	}
	u, err := url.Parse(place)
	if err != nil {
		return // it can match no image
	}
	path := u.Path
	if strings.HasPrefix(path, "/v2/") || strings.HasPrefix(path, "/v1/") {
		path = path[3:] // old clients write a whole registry like this
	}
	if path == "/" {
		path = ""
	}
	if k.logins == nil {
		k.logins = map[string][]login{}
	}
	k.logins[u.Host+path] = append(k.logins[u.Host+path], l)
}

// find returns the logins for a repository, those for the most specific location first.
func (k *loginIndex) find(repository string) (out []login) {
	places := make([]string, 0, len(k.logins))
	for place := range k.logins {
		places = append(places, place)
	}
	slices.SortFunc(places, func(a, b string) int { return cmp.Compare(b, a) })
	for _, place := range places {
		if matches(place, repository) {
			out = append(out, k.logins[place]...)
		}
	}
	if len(out) == 0 && strings.HasPrefix(repository, "docker.io/") {
		out = k.logins["index.docker.io"]
	}
	return out
}

// matches reports whether an image is at a location: every part of the host matches that of the pattern, the port is
// the same, and the path has that of the pattern as its prefix.
func matches(pattern, image string) bool {
	p, err1 := url.Parse("https://" + pattern)
	i, err2 := url.Parse("https://" + image)
	if err1 != nil || err2 != nil {
		return false
	}
	patternHost, patternPort := hostOf(p)
	imageHost, imagePort := hostOf(i)
	if patternPort != imagePort || len(patternHost) != len(imageHost) || !strings.HasPrefix(i.Path, p.Path) {
		return false
	}
	for n := range patternHost {
		if ok, err := filepath.Match(patternHost[n], imageHost[n]); err != nil || !ok {
			return false
		}
	}
	return true
}

func hostOf(u *url.URL) (parts []string, port string) {
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		host, port = u.Host, ""
	}
	return strings.Split(host, "."), port
}

// entry is a login in a configuration file: as two fields, or as one base64 field.
type entry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"`
}

func (e entry) login() (login, error) {
	if e.Auth == "" {
		return login{Username: e.Username, Password: e.Password}, nil
	}
	// Some clients pad it and some do not.
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(e.Auth), "="))
	if err != nil {
		return login{}, errors.New("the auth field is not base64")
	}
	name, password, ok := strings.Cut(string(text), ":")
	if !ok {
		return login{}, errors.New("unable to parse auth field, must be formatted as base64(username:password)")
	}
	return login{Username: name, Password: password}, nil
}

// addSecret adds the logins of a Secret. A Secret of another type has none.
func (k *loginIndex) addSecret(s *corev1.Secret) error {
	var entries map[string]entry
	switch {
	case s.Type == corev1.SecretTypeDockerConfigJson && len(s.Data[corev1.DockerConfigJsonKey]) > 0:
		var file struct {
			Auths map[string]entry `json:"auths"`
		}
		// The parser's error may quote the contents, so it is left out.
		if err := json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &file); err != nil {
			return fmt.Errorf("the secret %s has no valid %s", s.Name, corev1.DockerConfigJsonKey)
		}
		entries = file.Auths
	case s.Type == corev1.SecretTypeDockercfg && len(s.Data[corev1.DockerConfigKey]) > 0:
		if err := json.Unmarshal(s.Data[corev1.DockerConfigKey], &entries); err != nil {
			return fmt.Errorf("the secret %s has no valid %s", s.Name, corev1.DockerConfigKey)
		}
	}
	for place, e := range entries {
		l, err := e.login()
		if err != nil {
			return fmt.Errorf("the secret %s: %w", s.Name, err)
		}
		l.from = owner{Secret: true, UID: string(s.UID), Namespace: s.Namespace, Name: s.Name}
		k.add(place, l)
	}
	return nil
}

// addFile adds the logins of a config.json in Docker's format, which all Pods of this node may use.
func (k *loginIndex) addFile(text []byte) error {
	var file struct {
		Auths map[string]entry `json:"auths"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return errors.New("the file of logins is not valid JSON")
	}
	for place, e := range file.Auths {
		l, err := e.login()
		if err != nil {
			return err
		}
		k.add(place, l)
	}
	return nil
}
