package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"proa.dev/run"
	"proa.dev/run/settings"
)

// flags are the values of flags by name, in the order in which they were given.
type flags map[string][]string

// parse parses flags in the form --name=value, as envtest passes them. A flag without a value is true.
func parse(args []string, known map[string]bool) (flags, error) {
	given := flags{}
	for _, arg := range args {
		text, isFlag := strings.CutPrefix(arg, "--")
		name, value, has := strings.Cut(text, "=")
		if !has {
			value = "true"
		}
		if !isFlag || !known[name] && name != "help" {
			return nil, fmt.Errorf("unknown flag: %s", arg)
		}
		given[name] = append(given[name], value)
	}
	return given, nil
}

// last returns the last value of a flag, which is the one that counts.
func (f flags) last(name string) string {
	if values := f[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// printFlags prints flags in the format of a program's help, which envtest parses.
func printFlags(w io.Writer, known map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(known)) {
		fmt.Fprintf(w, "      --%s string\n", name)
	}
}

// etcdFlags returns the flags that envtest passes to etcd.
func etcdFlags() map[string]bool {
	return set("advertise-client-urls", "listen-client-urls", "listen-peer-urls", "data-dir", "unsafe-no-fsync")
}

// apiFlags returns the flags of kube-apiserver that are settings of proa, and those that this program handles.
func apiFlags() map[string]bool {
	known := set("allow-privileged", "bind-address", "cert-dir", "client-ca-file", "etcd-servers", "secure-port",
		"service-account-key-file", "service-account-signing-key-file", "service-cluster-ip-range")
	for _, s := range settings.All() {
		known[s.Name] = true
	}
	return known
}

func set(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[name] = true
	}
	return out
}

// settings applies to a config those flags that are settings of proa.
func (f flags) settings(c *run.Config) error {
	given := maps.Clone(f)
	if ranges, ok := given["service-cluster-ip-range"]; ok {
		given["service-cidr"] = ranges
	}
	delete(given, "etcd-servers") // the etcd of this program stores nothing
	for _, s := range settings.All() {
		values, ok := given[s.Name]
		if !ok {
			continue
		}
		if !s.Many {
			values = values[len(values)-1:]
		}
		if err := s.Set(&c.Config, values); err != nil {
			return fmt.Errorf("--%s: %w", s.Name, err)
		}
	}
	return nil
}
