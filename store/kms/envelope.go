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
	// infoSize is the number of random bytes before the data from which, together with the seed, the key of a value is
	// derived.
	infoSize = 32
	// maxKeyID, maxSource and maxAnnotations bound what a plugin may return to be stored.
	maxKeyID       = 1 << 10
	maxSource      = 1 << 10
	maxAnnotations = 32 << 10
)

// source is the source of the keys of values: a seed from which they are derived, or the key itself, as in older
// versions of Kubernetes.
type source struct {
	secret []byte
	seed   bool
}

func (s source) check() error {
	if s.seed && (len(s.secret) < seedSize || len(s.secret) > maxSource) { // it is kept in memory
		return fmt.Errorf("the plugin has returned a seed of %d bytes", len(s.secret))
	}
	_, err := s.aead(make([]byte, infoSize))
	return err
}

// aead returns the cipher of a value. info is ignored if the source is the key itself.
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
		EncryptedDEKSourceType: w.object.EncryptedDEKSourceType,
		EncryptedData:          aead.Seal(append(info, nonce...), nonce, value, []byte(key)),
	}
	return proto.Marshal(o)
}

var errShort = errors.New("the stored data was shorter than the required size")

// Open decrypts the value of a key of the store. stale reports that the plugin has another key now.
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
	s, err := p.seedOf(ctx, o)
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

// check validates an encrypted object, as Kubernetes does.
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

// identity returns a hash that identifies the encrypted seed of an object.
func identity(o *stored.EncryptedObject) (out [sha256.Size]byte) {
	h := sha256.New()
	hashPart(h, []byte{byte(o.EncryptedDEKSourceType)})
	hashPart(h, o.EncryptedDEKSource)
	hashPart(h, []byte(o.KeyID))
	for _, k := range slices.Sorted(maps.Keys(o.Annotations)) {
		hashPart(h, []byte(k))
		hashPart(h, o.Annotations[k])
	}
	h.Sum(out[:0])
	return out
}

// hashPart adds bytes with their length, so that different lists of parts have different hashes.
func hashPart(h hash.Hash, b []byte) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
	h.Write(b)
}
