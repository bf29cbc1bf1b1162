// Package userkubeconfig adds the entries of a cluster to the user's kubeconfig and removes them. The file belongs to
// the user: it is edited as a document, so that entries, fields and comments that proa does not know stay as they are.
package userkubeconfig

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"proa.dev/cli/command"
)

// The user's kubeconfig belongs to the user. It is edited as a document, so that entries, fields and comments that proa
// knows nothing about stay as they are.

// sections are the lists of a kubeconfig that hold named entries.
var sections = [...]string{"clusters", "users", "contexts"}

// ErrForeignContext is the error if a context of the same name belongs to another cluster.
var ErrForeignContext = errors.New("the context belongs to another cluster")

// Files returns the files that kubectl would read, in their order.
func Files() ([]string, error) {
	files := slices.DeleteFunc(filepath.SplitList(os.Getenv("KUBECONFIG")), func(path string) bool { return path == "" })
	if len(files) > 0 {
		return files, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	return []string{filepath.Join(home, ".kube", "config")}, nil
}

// Path returns the file that kubectl would write to.
func Path() (string, error) {
	files, err := Files()
	if err != nil {
		return "", fmt.Errorf("find the kubeconfig to merge into: %w", err)
	}
	return filepath.Abs(files[0])
}

// Merge puts the entries of the administrator's kubeconfig into the user's, and makes its context the current one.
func Merge(admin, user []byte) ([]byte, error) {
	from, err := parseKubeconfig(admin)
	if err != nil {
		return nil, err
	}
	to, err := parseKubeconfig(user)
	if err != nil {
		return nil, err
	}
	name := scalar(field(from, "current-context"))
	if old := entry(to, "contexts", name); old != nil && !sameCluster(from, to, name) {
		return nil, ErrForeignContext
	}
	for _, section := range sections {
		for _, e := range list(from, section) {
			put(to, section, e)
		}
	}
	for key, fallback := range map[string]string{"apiVersion": "v1", "kind": "Config"} {
		if field(to, key) == nil {
			set(to, key, fallback)
		}
	}
	set(to, "current-context", name)
	return formatKubeconfig(to)
}

// CurrentContext returns the current context of the user's kubeconfig; empty if there is none, or if it is that of the
// administrator's kubeconfig.
func CurrentContext(admin, user []byte) string {
	from, err := parseKubeconfig(admin)
	if err != nil {
		return ""
	}
	in, err := parseKubeconfig(user)
	if err != nil {
		return ""
	}
	if name := scalar(field(in, "current-context")); name != scalar(field(from, "current-context")) {
		return name
	}
	return ""
}

// Unmerge removes those entries again, and makes the context before current, if it still exists. It reports whether
// there were such entries.
func Unmerge(admin, user []byte, before string) ([]byte, bool, error) {
	from, err := parseKubeconfig(admin)
	if err != nil {
		return nil, false, err
	}
	to, err := parseKubeconfig(user)
	if err != nil {
		return nil, false, err
	}
	name := scalar(field(from, "current-context"))
	if entry(to, "contexts", name) == nil || !sameCluster(from, to, name) {
		return user, false, nil
	}
	for _, section := range sections {
		for _, e := range list(from, section) {
			drop(to, section, scalar(field(e, "name")))
		}
	}
	if scalar(field(to, "current-context")) == name {
		if entry(to, "contexts", before) == nil {
			before = ""
		}
		set(to, "current-context", before)
	}
	out, err := formatKubeconfig(to)
	return out, true, err
}

// sameCluster tells whether the context of a name leads to the same cluster in both kubeconfigs: they have the same
// certificate authority, or the same server address.
func sameCluster(a, b *yaml.Node, context string) bool {
	of := func(doc *yaml.Node) *yaml.Node {
		x := field(entry(doc, "contexts", context), "context")
		return field(entry(doc, "clusters", scalar(field(x, "cluster"))), "cluster")
	}
	ca, cb := of(a), of(b)
	if cb == nil {
		return true // a context without a cluster may be replaced
	}
	const caData = "certificate-authority-data"
	ka, ea := base64.StdEncoding.DecodeString(scalar(field(ca, caData)))
	kb, eb := base64.StdEncoding.DecodeString(scalar(field(cb, caData)))
	if ea == nil && eb == nil && len(ka) > 0 && bytes.Equal(ka, kb) {
		return true
	}
	return scalar(field(ca, "server")) == scalar(field(cb, "server"))
}

func parseKubeconfig(data []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return &yaml.Node{Kind: yaml.MappingNode}, nil
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("it is not a kubeconfig")
	}
	if len(doc.Content[0].Content) == 0 {
		doc.Content[0].Style = 0 // {} would go on in that style
	}
	return doc.Content[0], nil
}

func formatKubeconfig(doc *yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(doc); err != nil {
		return nil, err
	}
	return out.Bytes(), enc.Close()
}

func field(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

func set(n *yaml.Node, key, value string) {
	v := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	if old := field(n, key); old != nil {
		*old = *v
		return
	}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, v)
}

func list(n *yaml.Node, section string) []*yaml.Node {
	s := field(n, section)
	if s == nil || s.Kind != yaml.SequenceNode {
		return nil
	}
	return s.Content
}

func entry(n *yaml.Node, section, name string) *yaml.Node {
	for _, e := range list(n, section) {
		if scalar(field(e, "name")) == name {
			return e
		}
	}
	return nil
}

// put replaces the entry of the same name, or adds it.
func put(n *yaml.Node, section string, e *yaml.Node) {
	if old := entry(n, section, scalar(field(e, "name"))); old != nil {
		*old = *e
		return
	}
	s := field(n, section)
	switch {
	case s == nil:
		s = &yaml.Node{Kind: yaml.SequenceNode}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: section}, s)
	case s.Kind != yaml.SequenceNode:
		*s = yaml.Node{Kind: yaml.SequenceNode} // null, as kubectl leaves an empty list
	}
	s.Style = 0 // an empty list is written as [], which would go on in that style
	s.Content = append(s.Content, e)
}

func drop(n *yaml.Node, section, name string) {
	if s := field(n, section); s != nil {
		s.Content = slices.DeleteFunc(s.Content, func(e *yaml.Node) bool { return scalar(field(e, "name")) == name })
	}
}

// copyOf returns the file with the user's kubeconfig as it was before the first cluster was added.
func copyOf(path string) string { return path + ".before-proa" }

// KeepOriginal keeps a copy of the user's kubeconfig before a cluster is added for the first time. A copy that there is stays. The entries
// of the administrator's kubeconfig are not in the copy, because they hold a key of the cluster.
func KeepOriginal(path string, admin, user []byte) error {
	if len(user) == 0 || command.FileExists(copyOf(path)) {
		return nil
	}
	original, _, err := Unmerge(admin, user, "")
	if err == nil {
		err = command.ReplaceFile(copyOf(path), original)
	}
	if err != nil {
		return fmt.Errorf("keep a copy of it: %w", err)
	}
	return nil
}

// CleanOriginal removes the entries of the administrator's kubeconfig from the copy of KeepOriginal, where former programs have left
// them, and removes the copy if the user's kubeconfig has the same content.
func CleanOriginal(path string, admin, user []byte) error {
	have, err := os.ReadFile(copyOf(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var cleaned []byte
	found := false
	if err == nil {
		cleaned, found, err = Unmerge(admin, have, "")
	}
	switch {
	case err == nil && sameDocument(cleaned, user):
		err = os.Remove(copyOf(path))
	case err == nil && found:
		err = command.ReplaceFile(copyOf(path), cleaned)
	}
	if err != nil {
		return fmt.Errorf("clean the copy of it: %w", err)
	}
	return nil
}

// sameDocument tells whether two kubeconfigs differ in their layout only.
func sameDocument(a, b []byte) bool {
	one, errOne := parseKubeconfig(a)
	other, errOther := parseKubeconfig(b)
	if errOne != nil || errOther != nil {
		return false
	}
	x, errX := formatKubeconfig(one)
	y, errY := formatKubeconfig(other)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// Edit changes the user's kubeconfig atomically, under the lock that kubectl uses.
func Edit(path string, change func(old []byte) ([]byte, error)) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	unlock, err := lockKubeconfig(path)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	updated, err := change(old)
	if err != nil || bytes.Equal(old, updated) {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // replace what a link leads to, not the link
	}
	return command.ReplaceFile(path, updated)
}

// lockKubeconfig takes the lock by which kubectl excludes other writers of the file.
func lockKubeconfig(path string) (unlock func(), err error) {
	lock := path + ".lock"
	for range 50 {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			return func() { _ = os.Remove(lock) }, f.Close()
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, fmt.Errorf("another program holds %s; if none is running, remove it", lock)
}
