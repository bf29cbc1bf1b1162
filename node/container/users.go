package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/cri"
)

// perPod is the least number of user ids of a Pod with a user namespace; other lengths are multiples.
const perPod = 65536

// Users are the user ids of this machine that Pods with user namespaces get, one range each. The zero value uses all
// but the first range, which is the machine's own.
type Users struct {
	First, Count uint32
	PerPod       uint32
	// MaxPods is the number of Pods for which there must be ranges.
	MaxPods int
	// Able reports whether a runtime handler supports user namespaces; nil means that all do.
	Able func(handler string) bool
}

func (u *Users) check() error {
	if u.PerPod == 0 {
		u.PerPod = perPod
	}
	if u.Count == 0 {
		u.First, u.Count = u.PerPod, math.MaxUint32-u.PerPod+1
	}
	switch {
	case u.PerPod%perPod != 0:
		return fmt.Errorf("kubelet user namespace length %v is not a multiple of %d", u.PerPod, perPod)
	case u.First%u.PerPod != 0:
		return fmt.Errorf("kubelet user assigned ID %v is not a multiple of %v", u.First, u.PerPod)
	case u.First < u.PerPod:
		return fmt.Errorf("kubelet user assigned ID %v must be greater or equal to %v", u.First, u.PerPod)
	case u.Count%u.PerPod != 0:
		return fmt.Errorf("kubelet user assigned IDs length %v is not a multiple of %v", u.Count, u.PerPod)
	case int64(u.Count/u.PerPod) < int64(u.MaxPods):
		return fmt.Errorf("kubelet user assigned IDs are not enough to support %v pods", u.MaxPods)
	}
	return nil
}

// ParseUsers reads the range of a user from /etc/subuid and /etc/subgid. found is false if it has none.
func ParseUsers(subuid, subgid, user string) (first, count uint32, found bool, err error) {
	uids, gids := rangesOf(subuid, user), rangesOf(subgid, user)
	if len(uids) == 0 && len(gids) == 0 {
		return 0, 0, false, nil
	}
	if len(uids) != 1 || len(gids) != 1 || uids[0] != gids[0] {
		return 0, 0, false, fmt.Errorf("mismatched subuids and subgids for user %q: give it one range, the same in /etc/subuid and /etc/subgid", user)
	}
	a, b, _ := strings.Cut(uids[0], ":")
	from, err1 := strconv.ParseUint(a, 10, 32)
	length, err2 := strconv.ParseUint(b, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, false, fmt.Errorf("the range %q of user %q: %w", uids[0], user, err)
	}
	return uint32(from), uint32(length), true, nil
}

func rangesOf(text, user string) (out []string) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), user+":"); ok {
			out = append(out, rest)
		}
	}
	return out
}

// mapping is a range of ids in the file userns of a Pod.
type mapping struct {
	Host      uint32 `json:"hostId"`
	Container uint32 `json:"containerId"`
	Length    uint32 `json:"length"`
}

// mappings is the contents of that file.
type mappings struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

// userNamespace returns the user namespace of a Pod: the node's, or its own with ids that no other Pod on this node
// has. The ids are stored in the Pod's folder only, and are free again when the folder is removed.
func (m *Maker) userNamespace(p *corev1.Pod, handler string) (*cri.UserNamespace, error) {
	if p.Spec.HostUsers == nil || *p.Spec.HostUsers {
		return &cri.UserNamespace{Mode: cri.NamespaceNode}, nil
	}
	if m.Users.Able != nil && !m.Users.Able(handler) {
		if handler != "" {
			return nil, fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
		}
		return nil, errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	m.users.Lock()
	defer m.users.Unlock()
	ids, err := m.readUserRange(p.UID)
	if errors.Is(err, fs.ErrNotExist) {
		ids, err = m.allocateUserRange(p.UID)
	}
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	return &cri.UserNamespace{
		Mode: cri.NamespacePod,
		Uids: []*cri.IDMapping{{HostId: ids.Host, ContainerId: ids.Container, Length: ids.Length}},
		Gids: []*cri.IDMapping{{HostId: ids.Host, ContainerId: ids.Container, Length: ids.Length}},
	}, nil
}

// readUserRange reads the id range of a Pod.
func (m *Maker) readUserRange(uid types.UID) (mapping, error) {
	text, err := os.ReadFile(filepath.Join(m.PodDir(uid), "userns"))
	if err != nil {
		return mapping{}, err
	}
	return parseMappings(text, m.Users.PerPod)
}

func parseMappings(text []byte, length uint32) (mapping, error) {
	var f mappings
	if err := json.Unmarshal(text, &f); err != nil {
		return mapping{}, fmt.Errorf("invalid user namespace mappings file: %w", err)
	}
	switch {
	case len(f.UIDs) != 1 || len(f.GIDs) != 1 || f.UIDs[0] != f.GIDs[0]:
		return mapping{}, errors.New("invalid user namespace configuration: GID and UID mapping should be one, and identical")
	case f.UIDs[0].Container != 0:
		return mapping{}, errors.New("invalid user namespace configuration: UID 0 must be mapped")
	case f.UIDs[0].Length != length:
		return mapping{}, fmt.Errorf("wrong user namespace length %v", f.UIDs[0].Length)
	case f.UIDs[0].Host%length != 0 || f.UIDs[0].Host < length:
		return mapping{}, fmt.Errorf("wrong user namespace offset specified %v", f.UIDs[0].Host)
	}
	return f.UIDs[0], nil
}

// allocateUserRange allocates an id range that no Pod has, and stores it before it is used.
func (m *Maker) allocateUserRange(uid types.UID) (mapping, error) {
	entries, err := os.ReadDir(filepath.Join(m.Data, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return mapping{}, err
	}
	taken := map[uint32]bool{}
	for _, e := range entries {
		ids, err := m.readUserRange(types.UID(e.Name()))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
			continue
		}
		if err != nil {
			return mapping{}, fmt.Errorf("the ids of pod %s: %w", e.Name(), err)
		}
		taken[ids.Host] = true
	}
	for i := range m.Users.Count / m.Users.PerPod {
		host := m.Users.First + i*m.Users.PerPod
		if taken[host] {
			continue
		}
		ids := mapping{Host: host, Length: m.Users.PerPod}
		return ids, m.writeUserRange(uid, ids)
	}
	return mapping{}, errors.New("could not find an empty slot to allocate a user namespace")
}

func (m *Maker) writeUserRange(uid types.UID, ids mapping) error {
	dir := m.PodDir(uid)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	text, err := json.Marshal(mappings{UIDs: []mapping{ids}, GIDs: []mapping{ids}})
	if err != nil {
		return err
	}
	return writeAtomically(filepath.Join(dir, "userns"), text)
}
