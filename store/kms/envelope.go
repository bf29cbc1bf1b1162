package kms

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	stored "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
)

const (
	seedSize = 32
	// infoSize is how many random bytes before the data tell the key of a value from those of others.
	infoSize = 32
	// The bounds of what a plugin may have stored.
	maxKeyID       = 1 << 10
	maxSource      = 1 << 10
	maxAnnotations = 32 << 10
)

// source is what the key of a value is made of: a seed, or the key itself, which former versions of Kubernetes have used.
type source struct {
	secret []byte
	seed   bool
}

func (s source) check() error {
	if s.seed && len(s.secret) < seedSize {
		return fmt.Errorf("the plugin has returned a seed of %d bytes", len(s.secret))
	}
	_, err := s.aead(make([]byte, infoSize))
	return err
}

// aead makes the cipher of a value. info is ignored when the source is the key itself.
func (s source) aead(info []byte) (cipher.AEAD, error) {
	key := s.secret
	if s.seed {
		var err error
		if key, err = hkdf.Expand(sha256.New, s.secret, string(info), 32); err != nil {
			return nil, err
		}
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Seal encrypts the value of a key of the store.
func (p *Plugin) Seal(_ context.Context, key string, value []byte) ([]byte, error) {
	w := p.write.Load()
	if w == nil {
		return nil, fmt.Errorf("nothing can be encrypted: %w", p.Health())
	}
	if now := time.Now(); now.After(w.until) {
		return nil, fmt.Errorf("nothing can be encrypted, because the last status that was well is more than %v old: %w", writeLife, p.Health())
	}
	info := make([]byte, infoSize, infoSize+12+len(value)+16)
	_, _ = rand.Read(info) // never fails
	aead, err := w.aead(info)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce)
	o := &stored.EncryptedObject{
		KeyID: w.object.KeyID, EncryptedDEKSource: w.object.EncryptedDEKSource, Annotations: w.object.Annotations,
		EncryptedDEKSourceType: w.object.EncryptedDEKSourceType, EncryptedData: aead.Seal(append(info, nonce...), nonce, value, []byte(key)),
	}
	return proto.Marshal(o)
}

var errShort = errors.New("the stored data was shorter than the required size")

// Open decrypts the value of a key of the store. Stale says that the plugin has another key now.
func (p *Plugin) Open(ctx context.Context, key string, sealed []byte) (value []byte, stale bool, err error) {
	o := &stored.EncryptedObject{}
	if err := proto.Unmarshal(sealed, o); err != nil {
		return nil, false, err
	}
	if err := check(o); err != nil {
		return nil, false, err
	}
	if len(o.EncryptedData) == 0 {
		return nil, false, errors.New("encrypted data is empty")
	}
	s, err := p.find(ctx, o)
	if err != nil {
		return nil, false, err
	}
	data, info := o.EncryptedData, []byte(nil)
	if s.seed {
		if len(data) < infoSize {
			return nil, false, errShort
		}
		info, data = data[:infoSize], data[infoSize:]
	}
	aead, err := s.aead(info)
	if err != nil {
		return nil, false, err
	}
	if len(data) < aead.NonceSize() {
		return nil, false, errShort
	}
	if value, err = aead.Open(nil, data[:aead.NonceSize()], data[aead.NonceSize():], []byte(key)); err != nil {
		return nil, false, err
	}
	w := p.write.Load()
	return value, w == nil || w.object.KeyID != o.KeyID || w.object.EncryptedDEKSourceType != o.EncryptedDEKSourceType, nil
}

// check refuses what a plugin may not have stored.
func check(o *stored.EncryptedObject) error {
	if t := o.EncryptedDEKSourceType; stored.EncryptedDEKSourceType_name[int32(t)] == "" {
		return fmt.Errorf("unknown encryptedDEKSourceType: %d", t)
	}
	if n := len(o.EncryptedDEKSource); n == 0 || n > maxSource {
		return fmt.Errorf("the encrypted seed has %d bytes; it must have between 1 and %d", n, maxSource)
	}
	if err := checkKeyID(o.KeyID); err != nil {
		return err
	}
	size := 0
	for k, v := range o.Annotations {
		if errs := validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), k); len(errs) > 0 {
			return errs.ToAggregate()
		}
		size += len(k) + len(v)
	}
	if size > maxAnnotations {
		return fmt.Errorf("the annotations have %d bytes; they may have %d", size, maxAnnotations)
	}
	return nil
}

func checkKeyID(id string) error {
	if n := len(id); n == 0 || n > maxKeyID {
		return fmt.Errorf("the name of the plugin's key has %d bytes; it must have between 1 and %d", n, maxKeyID)
	}
	return nil
}

// identity is what tells seeds apart.
func identity(o *stored.EncryptedObject) (out [sha256.Size]byte) {
	h := sha256.New()
	part(h, []byte{byte(o.EncryptedDEKSourceType)})
	part(h, o.EncryptedDEKSource)
	part(h, []byte(o.KeyID))
	for _, k := range slices.Sorted(maps.Keys(o.Annotations)) {
		part(h, []byte(k))
		part(h, o.Annotations[k])
	}
	h.Sum(out[:0])
	return out
}

// part adds bytes with their number, so that no two lists of parts look the same.
func part(h hash.Hash, b []byte) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
	h.Write(b)
}
