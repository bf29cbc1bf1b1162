package image

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/node/cri"
)

const recordVersion = "kubelet.config.k8s.io/v1beta1"

// maxMatched is the number of Secrets of an image from which on further matches are not recorded.
const maxMatched = 100

// intent is the file of a pull that is under way, so that an agent that was killed knows that the image, if it exists,
// was pulled for a Pod.
type intent struct {
	metav1.TypeMeta
	Image string `json:"image"`
}

// record is the file of a pulled image: it says with whose credentials the image was pulled.
type record struct {
	metav1.TypeMeta
	Updated metav1.Time        `json:"lastUpdatedTime"`
	Ref     string             `json:"imageRef"`
	Mapping map[string]holders `json:"credentialMapping,omitempty"`
}

// holders are those who may use an image under one of its names.
type holders struct {
	Secrets   []holder `json:"kubernetesSecrets,omitempty"`
	Accounts  []holder `json:"kubernetesServiceAccounts,omitempty"`
	Everybody bool     `json:"nodePodsAccessible,omitempty"`
}

type holder struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Hash      string `json:"credentialHash,omitempty"`
}

func (l login) holder() holder {
	h := holder{UID: l.from.UID, Namespace: l.from.Namespace, Name: l.from.Name}
	if l.from.Secret {
		h.Hash = l.hash()
	}
	return h
}

// matches reports whether a login belongs to a holder: it is of the same Secret, or has the same name and password as
// another one. isNew says that recording it makes later checks faster.
func (h holders) matches(l login) (isNew, ok bool) {
	mine := l.holder()
	if l.from.Account {
		return false, slices.Contains(h.Accounts, mine)
	}
	if !l.from.Secret {
		return false, false
	}
	for _, known := range h.Secrets {
		sameSecret := known.UID == mine.UID && known.Namespace == mine.Namespace && known.Name == mine.Name
		if known.Hash != "" && known.Hash == mine.Hash || sameSecret {
			return (!sameSecret || known.Hash != mine.Hash) && len(h.Secrets) < maxMatched, true
		}
	}
	return false, false
}

// add adds a login; nil means that no credentials were needed, so that all Pods may use the image.
func (h holders) add(l *login) holders {
	switch {
	case h.Everybody:
	case l == nil || l.from == owner{}:
		return holders{Everybody: true}
	case l.from.Secret:
		mine := l.holder()
		h.Secrets = slices.DeleteFunc(slices.Clone(h.Secrets), func(x holder) bool {
			return x.UID == mine.UID && x.Namespace == mine.Namespace && x.Name == mine.Name
		})
		h.Secrets = append(h.Secrets, mine)
		slices.SortFunc(h.Secrets, func(a, b holder) int {
			return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
		})
	case !slices.Contains(h.Accounts, l.holder()):
		h.Accounts = append(slices.Clone(h.Accounts), l.holder())
	}
	return h
}

// records maintains the files, with the names and in the format of kubelets.
type records struct {
	pulling, done string

	mu         sync.Mutex // guards the files and flying
	inProgress map[string]int
}

func newRecords(dir string) (*records, error) {
	r := &records{pulling: filepath.Join(dir, "pulling"), done: filepath.Join(dir, "pulled"), inProgress: map[string]int{}}
	if err := errors.Join(os.MkdirAll(r.pulling, 0o700), os.MkdirAll(r.done, 0o700)); err != nil {
		return nil, fmt.Errorf("make the folders of image records: %w", err)
	}
	return r, nil
}

func fileOf(text string) string { return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(text))) }

func writeRecord(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", text, 0o600); err != nil {
		return errors.Join(err, os.Remove(path+".tmp"))
	}
	return os.Rename(path+".tmp", path)
}

// intend records that an image is about to be pulled.
func (r *records) intend(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inProgress[image] == 0 {
		i := intent{TypeMeta: metav1.TypeMeta{Kind: "ImagePullIntent", APIVersion: recordVersion}, Image: image}
		if err := writeRecord(filepath.Join(r.pulling, fileOf(image)), i); err != nil {
			return err
		}
	}
	r.inProgress[image]++
	return nil
}

// failed removes an intent.
func (r *records) failed(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeIntent(image)
}

func (r *records) removeIntent(image string) {
	if r.inProgress[image]--; r.inProgress[image] > 0 {
		return
	}
	delete(r.inProgress, image)
	_ = os.Remove(filepath.Join(r.pulling, fileOf(image)))
}

// pulled records who has pulled an image. If that cannot be written, the intent stays: the image still counts as
// pulled, and the next Pod has to show credentials.
func (r *records) pulled(image, ref string, by *login, log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.write(image, ref, func(h holders) holders { return h.add(by) }); err != nil {
		log.Error("cannot record who may use an image", "image", image, "err", err)
		return
	}
	if r.inProgress[image] > 0 {
		r.removeIntent(image)
	}
}

// write changes the record of an image.
func (r *records) write(image, ref string, change func(holders) holders) error {
	path := filepath.Join(r.done, fileOf(ref))
	rec, err := read[record](path)
	if err != nil || rec.Ref != ref {
		rec = record{Ref: ref} // a damaged record is replaced
	}
	rec.TypeMeta = metav1.TypeMeta{Kind: "ImagePulledRecord", APIVersion: recordVersion}
	rec.Updated = metav1.NewTime(time.Now())
	if rec.Mapping == nil {
		rec.Mapping = map[string]holders{}
	}
	if change != nil {
		rec.Mapping[plain(image)] = change(rec.Mapping[plain(image)])
	}
	return writeRecord(path, rec)
}

// of reads the record of an image. pulled reports that the image was pulled for a Pod, even if it is not known for
// which.
func (r *records) of(image, ref string) (rec record, pulled bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err = read[record](filepath.Join(r.done, fileOf(ref)))
	if err == nil && rec.Ref == ref {
		return rec, true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record{}, true, err
	}
	if r.inProgress[image] > 0 {
		return record{}, true, nil
	}
	_, err = os.Stat(filepath.Join(r.pulling, fileOf(image)))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	return record{}, true, err
}

func read[T any](path string) (out T, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out)
}

// recover turns the intents of an agent that was killed into records without holders, for images that exist.
func (r *records) recover(images []*cri.Image, log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, err := os.ReadDir(r.pulling)
	if err != nil {
		log.Warn("cannot read which images were being pulled", "err", err)
		return
	}
	for _, e := range entries {
		i, err := read[intent](filepath.Join(r.pulling, e.Name()))
		if err != nil || r.inProgress[i.Image] > 0 || !strings.HasPrefix(e.Name(), "sha256-") {
			continue
		}
		for _, image := range images {
			if !slices.Contains(image.RepoTags, i.Image) && !slices.Contains(image.RepoDigests, i.Image) && !hasName(image, i.Image) {
				continue
			}
			if err := r.write(i.Image, image.Id, nil); err != nil {
				log.Warn("cannot record that an image was pulled", "image", i.Image, "err", err)
				continue
			}
			_ = os.Remove(filepath.Join(r.pulling, e.Name()))
		}
	}
}

// hasName reports whether an image has a name, however that is written.
func hasName(image *cri.Image, text string) bool {
	n, err := ParseName(text)
	if err != nil {
		return false
	}
	full := n.Repository + ":" + n.Tag
	if n.Digest != "" {
		full = n.Repository + "@" + n.Digest
	}
	return slices.Contains(image.RepoTags, full) || slices.Contains(image.RepoDigests, full)
}

// prune deletes the records of images that no longer exist, except records that are newer than before.
func (r *records) prune(left []*cri.Image, before time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	here := map[string]bool{}
	for _, image := range left {
		here[fileOf(image.Id)] = true
	}
	entries, err := os.ReadDir(r.done)
	if err != nil {
		return
	}
	for _, e := range entries {
		if here[e.Name()] || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		path := filepath.Join(r.done, e.Name())
		if rec, err := read[record](path); err == nil && !rec.Updated.Time.Before(before.Truncate(time.Second)) {
			continue
		}
		_ = os.Remove(path)
	}
}
