package container

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
)

// maxResolvConf limits the size of the file.
const maxResolvConf = 10 << 20

// resolv is the contents of a resolv.conf.
type resolv struct{ servers, searches, options []string }

func readResolvConf(path string) (resolv, error) {
	if path == "" {
		return resolv{}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return resolv{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxResolvConf+1))
	if err != nil {
		return resolv{}, err
	}
	if len(text) > maxResolvConf {
		return resolv{}, fmt.Errorf("%s has more than %d bytes", path, maxResolvConf)
	}
	r, err := parseResolv(string(text))
	if err != nil {
		return resolv{}, fmt.Errorf("Encountered error while parsing resolv conf file. Error: %w", err)
	}
	return r, nil
}

// parseResolv parses a resolv.conf: name servers add up, the last search line counts, and so does the last of several
// options of one name.
func parseResolv(text string) (r resolv, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		switch f[0] {
		case "nameserver":
			if len(f) < 2 {
				err = errors.New("nameserver list is empty ")
				continue
			}
			r.servers = append(r.servers, f[1])
		case "search":
			r.searches = nil
			for _, s := range f[1:] {
				if s != "." {
					r.searches = append(r.searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range f[1:] {
				r.options = withOption(r.options, o)
			}
		}
	}
	return r, err
}

// FindResolvConf returns the node's resolv.conf that Pods can use. Pods cannot reach a resolver on the machine's
// loopback address; for that case systemd-resolved maintains a file with its upstream servers.
func FindResolvConf() string {
	const usual, behind = "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
	r, err := readResolvConf(usual)
	if err != nil {
		return ""
	}
	for _, s := range r.servers {
		if ip, err := netip.ParseAddr(s); err != nil || !ip.IsLoopback() {
			return usual
		}
	}
	if _, err := os.Stat(behind); err == nil && len(r.servers) > 0 {
		return behind
	}
	return usual
}
